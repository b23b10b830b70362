"""A small cloud in plain Python: hosts in zones, closed ones, ones for a purpose, and the servers on them.

It says how many more requests fit, where a server may go, and how few moves reach a goal, by trying all.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

GPU = "CUSTOM_GPU"
PURPOSE = "CUSTOM_KEPT_FOR_NFV"
CLASSES = ("VCPU", "MEMORY_MB", GPU)
Amounts = Mapping[str, int]


@dataclass(frozen=True)
class Host:
    """A host; one with GPUs has them below it."""

    name: str
    zone: str | None
    amounts: Amounts
    closed: bool = False
    kept: bool = False


@dataclass(frozen=True)
class Server:
    """A consumer with the amounts it holds on each of its hosts.

    Without `asked`, its request is not known: it stays in the zone of its host, and on hosts for its purpose.
    """

    uuid: str
    amounts: Amounts
    hosts: tuple[str, ...]
    zone: str | None = None
    asked: bool = True
    fixed: bool = False


@dataclass(frozen=True)
class Request:
    """A request: amounts, and a zone if only that will do."""

    amounts: Amounts
    zone: str | None = None


@dataclass(frozen=True)
class Cloud:
    """Hosts and servers; `opened`: closed hosts count like any other."""

    hosts: Mapping[str, Host]
    servers: Mapping[str, Server]
    opened: bool = False

    def used(self, host: str, name: str) -> int:
        """What servers hold of a class on a host."""
        return sum(each.amounts.get(name, 0) for each in self.servers.values() if host in each.hosts)

    def free(self, host: str, name: str) -> int:
        """What is left of a class on a host."""
        return self.hosts[host].amounts.get(name, 0) - self.used(host, name)

    def takes_new(self, host: Host) -> bool:
        """Whether consumers may come to a host."""
        return self.opened or not host.closed

    def offering(self, request: Request) -> list[Host]:
        """The hosts that count for a request, however full they are."""
        return [
            host
            for host in self.hosts.values()
            if self.takes_new(host)
            and request.zone in (None, host.zone)
            and all(host.amounts.get(name) for name in request.amounts)
        ]

    def room(self, host: Host, request: Request) -> int:
        """How many more of a request fit on a host."""
        return min(self.free(host.name, name) // amount for name, amount in request.amounts.items())

    def room_for(self, request: Request) -> int:
        """How many more of a request fit in all."""
        return sum(max(0, self.room(host, request)) for host in self.offering(request))

    def may_be_on(self, server: Server, host: Host) -> bool:
        """Whether a server may go to a host, whatever is free there."""
        if not self.takes_new(host) or server.fixed:
            return False
        if server.asked:
            return server.zone in (None, host.zone)
        own = self.hosts[server.hosts[0]]
        return own.zone in (None, host.zone) and (host.kept or not own.kept)

    def after(self, server: str, host: str) -> Cloud | None:
        """The cloud after a move; None if it is not possible now."""
        moved = self.servers[server]
        without = Cloud(self.hosts, {**self.servers, server: replace(moved, hosts=())}, self.opened)
        fits = all(without.free(host, name) >= amount for name, amount in moved.amounts.items())
        if not fits or not self.may_be_on(moved, self.hosts[host]):
            return None
        return Cloud(self.hosts, {**self.servers, server: replace(moved, hosts=(host,))}, self.opened)

    def with_request(self, request: Request, host: str) -> Cloud:
        """The cloud with a request on a host."""
        new = Server(str(uuid.uuid4()), request.amounts, (host,), fixed=True)
        return Cloud(self.hosts, {**self.servers, new.uuid: new}, self.opened)

    def burden(self, server: Server, host: Host) -> int:
        """How many things a host is kept for that a server does not need."""
        needs_purpose = not server.asked and self.hosts[server.hosts[0]].kept
        return (GPU in host.amounts and GPU not in server.amounts) + (host.kept and not needs_purpose)

    def share(self, host: Host, amounts: Amounts) -> float:
        """The largest share in use of the classes of a request."""
        known = [name for name in amounts if host.amounts.get(name)]
        return max((self.used(host.name, name) / host.amounts[name] for name in known), default=0.0)

    def is_empty(self, host: str) -> bool:
        """Whether no server is on a host."""
        return not any(host in each.hosts for each in self.servers.values())

    def empty_hosts(self) -> set[str]:
        """The hosts without servers that consumers may come to."""
        able = (host.name for host in self.hosts.values() if self.takes_new(host))
        return set(filter(self.is_empty, able))


def fewest_moves(cloud: Cloud, is_met: Callable[[Cloud], bool], most: int = 6) -> int | None:
    """How few moves reach a goal, each server moved once at most; None if no plan does."""
    reached, seen = [cloud], {_places(cloud)}
    for moves in range(most + 1):
        if any(map(is_met, reached)):
            return moves
        following = []
        for state in reached:
            for server in state.servers.values():
                if server.hosts != cloud.servers[server.uuid].hosts:
                    continue
                for host in state.hosts:
                    after = None if host in server.hosts else state.after(server.uuid, host)
                    if after is not None and (key := _places(after)) not in seen:
                        seen.add(key)
                        following.append(after)
        reached = following
    return None


def _places(cloud: Cloud) -> tuple[tuple[str, ...], ...]:
    return tuple(server.hosts for server in cloud.servers.values())


def last(cloud: Cloud, moves: Sequence[tuple[str, str]]) -> Cloud | None:
    """The cloud after all moves; None if one of them is not possible when it is made."""
    state: Cloud | None = cloud
    for server, host in moves:
        if state is not None:
            state = state.after(server, host)
    return state


def better_target(
    cloud: Cloud, moves: Sequence[tuple[str, str]], is_met: Callable[[Cloud], bool]
) -> tuple[str, str] | None:
    """A move with a target that is kept for less, by which the same plan works as well; None if none is."""
    state = cloud
    for at, (server, to) in enumerate(moves):
        mover = cloud.servers[server]
        for host in cloud.hosts.values():
            if host.name in mover.hosts or cloud.burden(mover, host) >= cloud.burden(mover, cloud.hosts[to]):
                continue
            final = last(state, [(server, host.name), *moves[at + 1 :]])
            if final is not None and is_met(final):
                return server, host.name
        after = state.after(server, to)
        assert after is not None
        state = after
    return None


def random_cloud(chance: random.Random) -> Cloud:
    """Three to five hosts in up to two zones, and up to five servers wherever they fitted when they came."""
    hosts = {}
    for number in range(chance.randint(3, 5)):
        amounts = {"VCPU": chance.randint(4, 7), "MEMORY_MB": chance.randint(4, 7)}
        if chance.random() < 0.35:
            amounts[GPU] = chance.randint(1, 2)
        zone = chance.choice(("z1", "z1", "z1", "z1", "z2"))
        host = Host(f"h{number}", zone, amounts, chance.random() < 0.2, chance.random() < 0.3)
        hosts[host.name] = host
    cloud = Cloud(hosts, {}, opened=True)
    for _ in range(chance.randint(2, 5)):
        cloud = _with_server(chance, cloud)
    return Cloud(hosts, cloud.servers)


def random_request(chance: random.Random) -> Request:
    """Some CPUs and memory, at times with a GPU, at times in one zone."""
    amounts = {"VCPU": chance.randint(1, 4), "MEMORY_MB": chance.randint(1, 3)}
    if chance.random() < 0.2:
        amounts[GPU] = 1
    return Request(amounts, chance.choice((None, None, None, "z1", "z1", "z2")))


def _with_server(chance: random.Random, cloud: Cloud) -> Cloud:
    """The cloud with one more server where it fits, if it fits anywhere."""
    request = random_request(chance)
    able = [host for host in cloud.offering(request) if cloud.room(host, request) > 0]
    if not able:
        return cloud
    count = 2 if len(able) > 1 and chance.random() < 0.1 else 1
    places = tuple(host.name for host in chance.sample(able, count))
    own, asked = str(uuid.UUID(int=chance.getrandbits(128), version=4)), chance.random() < 0.5
    fixed = count > 1 or chance.random() < 0.1
    server = Server(own, request.amounts, places, request.zone, asked, fixed)
    return Cloud(cloud.hosts, {**cloud.servers, own: server}, cloud.opened)
