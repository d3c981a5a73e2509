"""What programs save in a model's context, measured: the `sandbridge bench context` command.

A map: tasks.py says what a workload is, workloads/ has them, models.py the scripted models, wire.py the bodies that
are sent, play.py plays one task through the real gate and executor, count.py counts tokens and money, runner.py does
all tasks and writes rows and bodies, verify.py counts them again, stats.py and sweep.py draw conclusions, report.py
and plots.py show them, commands.py is the command line.

Two things are kept apart throughout: accounting, which a scripted model shows exactly, and behaviour, which only a
live model shows. A scripted row says that its plan was executed; it never says that a model would have had that plan.
"""
