"""Many nights: `make chaos SEEDS=1000`, or one again: `make chaos SEED=17`."""

import argparse
import multiprocessing
import os
import sys
import time
from collections.abc import Iterable

from chaos.night import Outcome, night

EVERY = 500  # nights after which a log is told how far it has come
SHRUNK = 3  # nights with violations that are looked at more closely


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="how many nights")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--stop", action="store_true", help="at the first violation")
    parser.add_argument("--seed", type=int, help="one night alone, and what happened in it")
    parser.add_argument("--without", default="", help="names of its events, with commas")
    args = parser.parse_args()
    if args.seed is not None:
        without = frozenset(filter(None, args.without.split(",")))
        found = night(args.seed, tell=True, without=without)
        print(*found.violations or ["nothing was violated"], sep="\n")
        return bool(found.violations)
    return _many(range(args.first, args.first + args.seeds), args.stop)


def _many(seeds: range, stop: bool) -> int:
    begin, shows = time.monotonic(), sys.stderr.isatty()
    done: list[Outcome] = []
    bad: list[Outcome] = []
    # Not forked: threads of torch would be lost.
    with multiprocessing.get_context("spawn").Pool(os.cpu_count()) as pool:
        try:
            for found in pool.imap_unordered(night, seeds):
                done.append(found)
                if found.violations:
                    bad.append(found)
                    print(f"night {found.seed}: {'; '.join(found.violations)}")
                    print(f"  again: {found.replay}", flush=True)
                if shows:
                    print(f"\r{_summary(done, bad, begin)}", end="", file=sys.stderr)
                elif len(done) % EVERY == 0:
                    print(_summary(done, bad, begin), flush=True)
                if bad and stop:
                    break
            else:
                pool.close()
                pool.join()
        except KeyboardInterrupt:
            pool.terminate()
    if shows:
        print(file=sys.stderr)
    print(_summary(done, bad, begin), flush=True)
    for found in bad[: 0 if stop else SHRUNK]:
        least = shrunk(found)
        left = [name for name in least.events if name not in least.without]
        print(f"night {found.seed} needs only: {', '.join(left) or 'no fault at all'}")
        print(f"  again: {least.replay}", flush=True)
    return bool(bad)


def shrunk(found: Outcome) -> Outcome:
    """The same night without what takes no part in the violation."""
    least = found
    for name in found.events:
        without = night(found.seed, without=least.without | {name})
        if without.violations:
            least = without
    return least


def _summary(done: Iterable[Outcome], bad: list[Outcome], begin: float) -> str:
    nights = list(done)
    hours = (time.monotonic() - begin) / 3600
    faults = sum(each.faults for each in nights)
    return (
        f"{len(nights)} nights, {faults} faults, {len(bad)} with violations,"
        f" {len(nights) / hours:.0f} nights an hour"
    )


if __name__ == "__main__":
    raise SystemExit(main())
