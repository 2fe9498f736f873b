"""The paper's models. Each names its shared parameters in `shared` and returns one output per objective."""
