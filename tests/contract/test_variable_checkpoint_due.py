"""When a checkpoint is due although the journal has nothing to say."""

from __future__ import annotations

from tests.contract.variable_house import VariableHouse, eager_paging, plain_options


def end_turns(house: VariableHouse) -> None:
    for _ in range(20):
        house.node.end_turn()


def test_transient_messages_that_are_paged_out_make_a_checkpoint_due() -> None:
    options = plain_options()
    options.checkpoint_files = 4
    house = VariableHouse(options, eager_paging())
    house.commit()
    end_turns(house)
    before = house.node.checkpointer.kept[-1].number if house.node.checkpointer.kept else 0
    rows = house.node.journal.next_lsn
    for number in range(4 * options.index_slots):
        house.publish(b"%03d" % number, persistent=False)
        house.queue.resume()
    assert house.node.journal.next_lsn == rows, "the journal has rows about them: the test proves nothing"
    assert house.node.queue_files_changed >= 4
    end_turns(house)
    assert house.node.checkpointer.kept[-1].number > before
