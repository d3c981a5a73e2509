"""What this project costs over time: durable runs, stores, load, search. Speed and context: `sandbridge bench`."""
