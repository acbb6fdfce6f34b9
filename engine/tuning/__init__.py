"""What k is worth: cost model, counterfactuals, ledger, sweeps. Pure, standard library only."""
