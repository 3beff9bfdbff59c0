"""Functions from graph to graph: differentiate, simplify. Nothing here runs an array. Floor: transforms."""
