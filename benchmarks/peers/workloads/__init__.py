"""What is measured: each workload is a function of a running peer that gives figures, and the roles it is made of."""
