"""What a policy that has nothing to change costs an engine, its tries included.

    python -m benchmarks.policy_overhead

As `benchmarks.overhead --policy goodput`: throughput over stock vLLM's at the same k_max.
"""

from __future__ import annotations

from benchmarks import overhead

if __name__ == "__main__":
    overhead.main(["--policy", "goodput", "--rounds", "16"])
