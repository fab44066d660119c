"""The registry against a naive one: a dict of workers, scanned in full each time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from router._core import Slot
from router.errors import WorkerNotFound
from router.fleet.worker import Patch, Registration, Status, Worker
from tests.fleet.fleets import cards, listed, make_registry, routed

MODELS = ["a", "b", "c", "unknown"]
URLS = [f"http://h{number}" for number in range(6)]
GLOBAL_ALIASES = {"everywhere": "a", "chained": "everywhere"}
NAMES = [*MODELS, "fast", "slow", "everywhere", "chained", "nobody's"]
PROVIDERS = [None, None, "openai", "groq"]

urls = st.sampled_from(URLS)
some_models = st.lists(st.sampled_from(MODELS), max_size=3, unique=True).map(tuple)
given_models = st.one_of(st.just(("*",)), some_models)
some_aliases = st.dictionaries(
    st.sampled_from(["fast", "slow", "b"]),
    st.sampled_from(["a", "b", None]),
    max_size=2,
)


@dataclass
class Naive:
    """One worker as the contract tells it, nothing derived or cached."""

    url: str
    base: str
    given: tuple[str, ...]
    model_id: str
    aliases: dict[str, str | None]
    provider: str | None
    priority: int
    wildcard_if_empty: bool
    slot: Slot
    listed: tuple[str, ...] | None = None
    healthy: bool = False
    was_ready: bool = False
    fresh: bool = False
    draining: bool = False
    load: list[Slot] = field(default_factory=list)

    def models(self) -> tuple[str, ...]:
        if self.listed is not None:
            names = self.listed
        elif self.given:
            names = self.given
        else:
            names = (self.model_id,)
        return tuple(name for name in names if name not in ("unknown", "*"))

    def wildcard(self) -> bool:
        empty = self.wildcard_if_empty and self.listed is not None
        return "*" in self.given or (empty and not self.models())

    def target(self, name: str) -> str | None:
        """What the worker would call `name`; None: it does not serve it by name."""
        models = self.models()
        if name in models:
            return name
        if name in self.aliases:
            model = self.aliases[name]
            if model is None:
                return models[0] if models else name
            if model in models or not models or self.wildcard():
                return model
        if name in GLOBAL_ALIASES:
            model = GLOBAL_ALIASES[name]
            real = self.target(model)
            return model if real is None and self.wildcard() else real
        return None

    def serves(self, name: str) -> bool:
        return self.wildcard() or self.target(name) is not None

    def status(self) -> Status:
        if self.draining:
            return Status.DRAINING
        usable = self.wildcard() or any(self.target(n) is not None for n in NAMES)
        known = self.listed is None or self.fresh
        if self.healthy and known and usable:
            return Status.READY
        if not self.was_ready or (self.healthy and known):
            return Status.PENDING
        return Status.UNHEALTHY


class Fleet(RuleBasedStateMachine):
    """Changes both and compares all that can be asked."""

    unlisted_wildcard = False

    def __init__(self) -> None:
        super().__init__()
        self.registry = make_registry(
            aliases=GLOBAL_ALIASES, unlisted_wildcard=self.unlisted_wildcard
        )
        self.naive: dict[str, Naive] = {}
        self.gone: list[Slot] = []
        self.running: list[Slot] = []

    def at(self, base: str) -> Iterator[Naive]:
        return (w for w in list(self.naive.values()) if w.base == base)

    @rule(
        base=urls,
        given=given_models,
        model_id=st.sampled_from(MODELS),
        aliases=some_aliases,
        provider=st.sampled_from(PROVIDERS),
        priority=st.sampled_from([50, 50, 10]),
        ranks=st.sampled_from([None, None, 2]),
    )
    def register(
        self,
        base: str,
        given: tuple[str, ...],
        model_id: str,
        aliases: dict[str, str | None],
        provider: str | None,
        priority: int,
        ranks: int | None,
    ) -> None:
        registration = Registration(
            base,
            model_id=model_id,
            models=given,
            aliases=aliases,
            provider=provider,
            priority=priority,
            dp_size=ranks,
        )
        old = [w.url for w in self.at(base)]
        outcome = self.registry.register(registration)
        assert [worker.url for worker in outcome.replaced] == old
        for url in old:
            self.gone.append(self.naive.pop(url).slot)
        for worker in outcome.workers:
            self.naive[worker.url] = Naive(
                worker.url,
                base,
                given,
                model_id,
                dict(aliases),
                provider,
                priority,
                self.unlisted_wildcard,
                worker.slot,
            )

    @rule(url=urls)
    def remove(self, url: str) -> None:
        found = [w.url for w in self.at(url)]
        try:
            removed = [worker.url for worker in self.registry.remove(url)]
        except WorkerNotFound:
            removed = []
        assert removed == found
        for name in found:
            self.gone.append(self.naive.pop(name).slot)

    @rule(url=urls, models=some_models)
    def sync(self, url: str, models: tuple[str, ...]) -> None:
        for naive in self.at(url):
            assert self.registry.sync_models(naive.slot, cards(*models))
            naive.listed, naive.fresh = models, True

    @rule(url=urls)
    def no_list(self, url: str) -> None:
        for naive in self.at(url):
            assert self.registry.sync_models(naive.slot, None)
            if naive.listed is not None or not naive.models():
                naive.listed = ()
            naive.fresh = True

    @rule(url=urls, healthy=st.booleans())
    def probe(self, url: str, healthy: bool) -> None:
        for naive in self.at(url):
            assert self.registry.set_health(naive.slot, healthy)
            naive.healthy = healthy
            naive.fresh = naive.fresh and healthy

    @rule(url=urls)
    def drain(self, url: str) -> None:
        if any(self.at(url)):
            self.registry.drain(url)
        for naive in self.at(url):
            naive.draining = True

    @rule(url=urls, models=st.none() | given_models, aliases=st.none() | some_aliases)
    def patch(
        self,
        url: str,
        models: tuple[str, ...] | None,
        aliases: dict[str, str | None] | None,
    ) -> None:
        if any(self.at(url)):
            self.registry.patch(url, Patch(models=models, aliases=aliases))
        for naive in self.at(url):
            if models is not None:
                naive.given, naive.listed = models, None
            if aliases is not None:
                naive.aliases = dict(aliases)

    @rule()
    def learn_late(self) -> None:
        """Of lives that are over: nothing changes, which the invariants see."""
        for slot in self.gone:
            assert not self.registry.sync_models(slot, cards("c"))
            assert not self.registry.set_health(slot, True)

    @rule(name=st.sampled_from(NAMES))
    def request(self, name: str) -> None:
        pool = self.registry.snapshot.pool(name)
        slot = None if pool is None else pool.round_robin()
        if slot is not None:
            self.running.append(slot)

    @rule()
    def requests_end(self) -> None:
        for slot in self.running:
            assert self.registry.slots.release(slot)
        self.running.clear()

    @rule()
    def tick(self) -> None:
        for naive in list(self.naive.values()):
            if naive.draining and naive.slot not in self.running:
                self.gone.append(self.naive.pop(naive.url).slot)
        self.registry.tick()

    @invariant()
    def every_name_has_the_candidates_that_a_full_scan_finds(self) -> None:
        for naive in self.naive.values():
            naive.was_ready |= naive.status() is Status.READY
        for name in NAMES:
            serving = [w for w in self.naive.values() if w.serves(name)]
            ready = [w for w in serving if w.status() is Status.READY]
            assert listed(self.registry, name) == {w.url for w in serving}
            assert routed(self.registry, name) == {w.url for w in ready}
            by_name = any(w.target(name) is not None for w in self.naive.values())
            everywhere = name in GLOBAL_ALIASES and bool(serving)
            assert self.registry.snapshot.knows(name) == (by_name or everywhere)
            for provider in ("openai", "groq"):
                of_it = {w.url for w in ready if w.provider == provider}
                assert routed(self.registry, name, provider) == of_it

    @invariant()
    def every_worker_is_what_the_contract_says(self) -> None:
        workers = self.registry.workers()
        assert [w.url for w in workers] == list(self.naive)
        for worker in workers:
            naive = self.naive[worker.url]
            assert worker.status is naive.status()
            assert [card.id for card in worker.models] == list(naive.models())
            assert worker.wildcard == naive.wildcard()
            self.check_renames(worker, naive)
        statuses = [w.status() for w in self.naive.values()]
        for status, count in self.registry.snapshot.counts.items():
            assert statuses.count(status) == count

    def check_renames(self, worker: Worker, naive: Naive) -> None:
        for name in NAMES:
            target = naive.target(name)
            if target is None:
                assert name not in worker.renames
            else:
                assert worker.renames.get(name, name) == target

    @invariant()
    def the_request_without_a_model_asks_the_same_index(self) -> None:
        ready = [w for w in self.naive.values() if w.status() is Status.READY]
        assert routed(self.registry, None) == {w.url for w in ready}
        bases = {name for w in self.naive.values() for name in w.models()}
        only = bases.pop() if len(bases) == 1 else None
        assert self.registry.snapshot.default_model == only


class FleetOfUnlistedWildcards(Fleet):
    """The same where an empty list makes a wildcard."""

    unlisted_wildcard = True


TestFleet = Fleet.TestCase
TestFleet.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestFleetOfUnlistedWildcards = FleetOfUnlistedWildcards.TestCase
TestFleetOfUnlistedWildcards.settings = TestFleet.settings
