"""A first server: one slow tool. Put `python first.py` into your client's MCP settings."""

from backburner import Backburner, TaskContext

bb = Backburner("first")


@bb.tool
def count_primes(up_to: int, *, ctx: TaskContext) -> int:
    """Count the primes up to a number, without hurry."""
    primes: list[int] = []
    for number in range(2, up_to + 1):
        if all(number % prime for prime in primes if prime * prime <= number):
            primes.append(number)
        ctx.progress(number, up_to, message=f"{len(primes)} primes so far")
    return len(primes)


if __name__ == "__main__":
    bb.run()
