"""How fast programs run here, and in what a user would pick instead: the `sandbridge bench speed` command.

A map: workloads.py has W1 to W8, one program each with the value that it must give; contender.py times any contender in
the same way; ours.py is this project, monty.py, racer.py, quickjs.py and processes.py are peers, contenders.py knows
them all by name; apart.py gives what runs inside its host's process a process of its own; measure.py lets them take
turns; table.py writes what came out.

A peer that is not installed is said to be absent. A contender that gives another value than the workload must give
stops the measurement: its time would mean nothing.
"""
