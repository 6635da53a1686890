"""tools/unasync.py: the synchronous face is what the asynchronous one says, and what cannot be said is refused."""

from __future__ import annotations

import pytest
from tools import unasync


def sync(text: str) -> str:
    return unasync.translated(text, "x.py")


def test_the_synchronous_face_is_what_its_source_says() -> None:
    stale = [
        path.name
        for path, text in unasync.generated().items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
    assert stale == []
    assert unasync.strays(unasync.generated()) == []


def test_what_is_written_by_hand_is_there_in_both_faces() -> None:
    names = [
        path.relative_to(unasync.SOURCE).as_posix()
        for path in unasync.SOURCE.rglob("*.py")
        if path.read_text("utf-8").startswith(unasync.BY_HAND)
    ]
    assert {"waiting.py", "amqp/socket.py", "file/waiting.py"} <= set(names)
    for name in names:
        assert (unasync.TARGET / name).read_text("utf-8").startswith(unasync.BY_HAND)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("async def f():\n    return await g(await h())\n", "def f():\n    return g(h())\n"),
        ("async with a as b, c:\n    pass\n", "with a as b, c:\n    pass\n"),
        ("async for a in b:\n    pass\n", "for a in b:\n    pass\n"),
        ("x = [a async for a in b]\n", "x = [a for a in b]\n"),
        ("from penstock.client.aio.driver import AsyncDriver\n", "from penstock.client.sync.driver import Driver\n"),
        ("class AsyncX(AsyncY):\n    pass\n", "class X(Y):\n    pass\n"),
        ("def __aenter__(self): ...\n", "def __enter__(self): ...\n"),
        ("# `AsyncX` awaits in client/aio\n", "# `X` awaits in client/sync\n"),
        ('"""See AsyncX: await it."""\n', '"""See X: await it."""\n'),
        ("awaited = asynchronous = is_async\n", "awaited = asynchronous = is_async\n"),
        ("a = (\n    await b\n)  # é\nc = await d\n", "a = (\n    b\n)  # é\nc = d\n"),
    ],
)
def test_words_go_and_names_change(text: str, wanted: str) -> None:
    assert sync(text) == wanted


@pytest.mark.parametrize(
    "text",
    [
        "import asyncio\n",
        "asyncio.sleep(1)\n",
        "x: Awaitable[int]\n",
        'f"{await x}"\n',
        "rf'{a} { await x}'\n",
        'f"AsyncX {a}"\n',
    ],
)
def test_what_only_one_face_can_have_is_refused(text: str) -> None:
    with pytest.raises(unasync.Untranslatable, match=r"x\.py:1"):
        sync(text)
