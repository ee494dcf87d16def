"""backends B-86: hostile text everywhere a caller's string goes is stored and returned exactly, or refused."""

from collections.abc import Callable
from typing import Any

from support.each import with_each

from lastlight_state import StateStore
from lastlight_state.errors import InvalidValue
from lastlight_state.messaging import ConversationKey
from lastlight_state.schedules import FireError, FireOutcome
from lastlight_state.workflows import PhaseEntry, Trigger
from lastlight_state.workflows.arguments import RunOptions

HOSTILE = {
    "quotes": """it's "quoted" `back` ''twice''""",
    "statement": "'; DROP TABLE workflow_runs; --",
    "placeholders": "%s %(name)s %% %",
    "names": ":name ::text @p $1 ?1 ?",
    "escapes": "\\ \\n \\0 \\u0000 E'\\''",
    "json": '{"a": [1, "]"]}',
    "emoji": "👩‍🚀🏴‍☠️",
    "rtl": "\u202e\u05e9\u05dc\u05d5\u05dd \u0645\u0631\u062d\u0628\u0627\u202c",
    "combining": "e\u0301 é \u1e9b\u0323",
    "beyond": "\U0010ffff\ufffe\ufeff",
    "turkish": "\u0130\u0131Ii \u1e9e\u00df",
    "nul": "a\0b",
    "surrogate": "a\ud83d",
    "control": "a\tb\r\nc\x1b[31m\x7f",
    "blank": "   ",
    "empty": "",
    "long": "x" * 1024 * 1024,
    "long emoji": "🚀" * (256 * 1024),
}

PLACES: dict[str, Callable[[StateStore, str], Any]] = {}


def place(keep: Callable[[StateStore, str], Any]) -> Callable[[StateStore, str], Any]:
    """A place where a caller's text goes: stores it and gives back what came of it."""
    PLACES[keep.__name__] = keep
    return keep


def create(store: StateStore, **given: Any) -> Any:
    options = {"trigger": Trigger(type="cli", id="t"), "phase": "p", **given}
    name = options.pop("workflow_name", "w")
    return store.workflows.runs.get(store.workflows.runs.create(name, **options).id)


@place
def run_id(store: StateStore, text: str) -> Any:
    return create(store, options=RunOptions(id=text)).id


@place
def workflow_name(store: StateStore, text: str) -> Any:
    create(store, workflow_name=text)
    return store.workflows.runs.list(workflow_names=[text]).items[0].workflow_name


@place
def trigger_id(store: StateStore, text: str) -> Any:
    return create(store, trigger=Trigger(type="cli", id=text)).trigger_id


@place
def context_value(store: StateStore, text: str) -> Any:
    return create(store, context={"deep": [{"text": text}]}).context["deep"][0]["text"]


@place
def context_key(store: StateStore, text: str) -> Any:
    return next(iter(create(store, context={text: 1}).context))


@place
def scratch_key(store: StateStore, text: str) -> Any:
    run = create(store)
    store.workflows.runs.merge_scratch(run.id, {text: text})
    store.workflows.runs.merge_scratch(run.id, {"other": 1}, remove=["other"])
    ((key, value),) = store.workflows.runs.get(run.id).scratch.items()
    assert key == value
    return key


@place
def phase(store: StateStore, text: str) -> Any:
    run = create(store)
    store.workflows.runs.append_phase(run.id, PhaseEntry(text, True))
    return store.workflows.runs.get(run.id).phase_history[0].phase


@place
def message(store: StateStore, text: str) -> Any:
    session = store.messaging.sessions.resume(ConversationKey("slack", "C", "U")).session
    made = store.messaging.messages.append(session.id, role="user", content=text).message
    return store.messaging.messages.get(made.id).content


@place
def platform_message_id(store: StateStore, text: str) -> Any:
    session = store.messaging.sessions.resume(ConversationKey("slack", "C", "U")).session
    append = store.messaging.messages.append
    made = append(session.id, role="user", content="c", platform_message_id=text).message
    assert append(session.id, role="user", content="c", platform_message_id=text).created == (text == "")
    return made.platform_message_id or ""  # "" means that the platform gave none


@place
def conversation_key(store: StateStore, text: str) -> Any:
    key = ConversationKey("slack", text, text)
    session = store.messaging.sessions.resume(key).session
    assert store.messaging.sessions.resume(key).session.id == session.id
    return session.channel_id


@place
def fire(store: StateStore, text: str) -> Any:
    fires = store.schedules.fires
    claim = fires.create(text, owner=text, actor=text)
    assert set(fires.latest([text])) == set(fires.health([text])) == {text}
    found = fires.list(cron_name=text).items[0]
    assert found.owner == found.actor == text
    fires.finish(claim, FireOutcome())
    return found.cron_name


@place
def end_of_a_fire(store: StateStore, text: str) -> Any:
    claim = store.schedules.fires.create("tidy", owner="w")
    kept = store.schedules.fires.finish(claim, FireOutcome("failed", note=text, error=FireError(text, detail=text)))
    assert kept.error == {"message": text, "detail": text}
    return kept.note


@with_each("where", PLACES)
def test_hostile_text_is_kept_exactly_or_refused(every_backend: StateStore, where: str) -> None:
    """backends B-86."""
    changed = {}
    for name, text in HOSTILE.items():
        try:
            kept = PLACES[where](every_backend, text)
        except InvalidValue as error:
            kept = text if len(str(error)) < 400 else "an error as long as the text"
        if kept != text:
            changed[name] = kept
    assert changed == {}
    create(every_backend)
