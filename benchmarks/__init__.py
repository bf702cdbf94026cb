"""How fast Trine is, measured beside the limit of the machine it runs on, in the same run."""
