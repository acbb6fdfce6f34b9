"""The tuning screen: speed over k, policy, breaker, trials, sweeps and the ledger."""
