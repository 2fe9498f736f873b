"""The paper reproduced: every table and figure, with its numbers beside ours and a verdict for every claim."""
