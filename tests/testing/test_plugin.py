"""The pytest plugin, as a user's test run sees it."""

from __future__ import annotations

import pytest

pytest_plugins = ["pytester"]

USES_THE_BROKER = """
    import pika

    def test_one(amqp_broker):
        connection = pika.BlockingConnection(pika.URLParameters(amqp_broker.url))
        channel = connection.channel()
        channel.queue_declare("q")
        channel.basic_publish("", "q", b"x")
        assert channel.basic_get("q", auto_ack=True)[2] == b"x"
        channel.basic_publish("", "q", b"left behind")
        connection.close()

    def test_two(amqp_broker):
        connection = pika.BlockingConnection(pika.URLParameters(amqp_broker.url))
        channel = connection.channel()
        assert channel.queue_declare("q").method.message_count == 0
        with amqp_broker.faults.refused_confirms():
            pass
        connection.close()
"""


def test_the_fixture_gives_each_test_a_broker_of_its_own(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(USES_THE_BROKER)
    pytester.runpytest_inprocess("-W", "error").assert_outcomes(passed=2)


def test_the_fixture_is_listed_with_what_it_does(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_inprocess("--fixtures")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["amqp_broker*", "*A real AMQP broker for one test*"])


def test_the_broker_stops_after_a_test_that_fails(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import threading

        def count():
            return [thread.name for thread in threading.enumerate()].count("penstock-broker")

        before = count()

        def test_fails(amqp_broker):
            assert count() == before + 1
            assert False

        def test_then():
            assert count() == before
        """
    )
    pytester.runpytest_inprocess().assert_outcomes(passed=1, failed=1)


def test_runs_that_do_not_use_the_fixture_do_not_pay_for_it(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import sys

        def test_nothing():
            assert [name for name in sys.modules if name.startswith(("penstock.server", "penstock.broker"))] == []
        """
    )
    pytester.runpytest_subprocess().assert_outcomes(passed=1)


def test_a_test_may_leave_its_connection_open(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pika

        def test_untidy(amqp_broker):
            connection = pika.BlockingConnection(pika.URLParameters(amqp_broker.url))
            assert connection.is_open
        """
    )
    pytester.runpytest_subprocess().assert_outcomes(passed=1)
