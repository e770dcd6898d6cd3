"""What Holdfast costs, measured: workloads, the limits of the databases beneath, and a report of both."""
