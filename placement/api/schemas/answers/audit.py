"""Answers about what was changed, and by whom."""

from placement.api.schemas.answers.base import OPTIONAL, Answer, texts
from placement.api.schemas.fields import Choice, Given, Integer, Object, Sequence, String, Uuid
from placement.domain.audit import Action


class Host(Answer):
    """Where a request came from."""

    address = String(nullable=True)


class Initiator(Answer):
    """Who made a change: the service itself has but a type and an id."""

    typeURI = String()
    id = String(nullable=True)
    project_id = String(nullable=True, metadata=OPTIONAL)
    roles = texts(metadata=OPTIONAL)
    host = Object(Host, metadata=OPTIONAL)
    request_id = String(metadata=OPTIONAL)
    global_request_id = String(nullable=True, metadata=OPTIONAL)


class Target(Answer):
    """What was changed."""

    typeURI = String()
    id = String()


class Observer(Target):
    """Who noted it: this service."""

    name = String()


class Attachment(Answer):
    """What was there before or after."""

    name = Choice(["before", "after"])
    typeURI = String()
    content = Given({})


class AuditEvent(Answer):
    """A record in the words of CADF."""

    typeURI = String()
    id = String()
    eventType = String()
    eventTime = String()
    action = Choice(list(Action))
    outcome = Choice(["success"])
    initiator = Object(Initiator)
    target = Object(Target)
    observer = Object(Observer)
    attachments = Sequence(Object(Attachment))


class AuditEvents(Answer):
    """Changes, the newest first; `next` is the `marker` of the following page."""

    events = Sequence(Object(AuditEvent))
    next = Integer(nullable=True)


class Change(Answer):
    """The last that happened to a provider or a consumer."""

    type = Choice(["resource_provider", "consumer"])
    uuid = Uuid()
    action = Choice(list(Action))
    generation = Integer(metadata=OPTIONAL)


class News(Answer):
    """What changed; `next` is the token from which to go on."""

    events = Sequence(Object(Change))
    next = String()
