"""The commands, one module each, and their registry: name, module and first line of the help.

A command is imported when it is called, so that ``manyhot --help`` and ``--version`` are fast.
"""

COMMANDS: dict[str, tuple[str, str]] = {
    "demo": ("demo", "Compare ZLPR with binary cross-entropy on pictures of digits: under two minutes, nothing to download."),
    "inspect": ("inspect", "Show how manyhot reads files of examples, and list their problems."),
    "pack": ("pack", "Pack files of examples into a folder of memory-mapped rows, for data larger than memory."),
    "train": ("train", "Train a model on files of examples."),
    "evaluate": (
        "evaluate",
        "Evaluate a model on files of labelled examples, or a span model on texts with spans.",
    ),
    "predict": ("predict", "Predict the labels of rows; writes JSON lines or CSV, the label with the highest score first."),
    "explain": (
        "explain",
        "Explain the labels of rows: which inputs count for and against each label, and how they add up to the score.",
    ),
    "tune": (
        "tune",
        "Tune the decision rule and the probabilities on held-out examples, and save them with the model.",
    ),
    "compare": ("compare", "Compare losses on your data: same body, splits, number of trials and early stopping for all."),
    "report": (
        "report",
        "Rebuild the report of a run or of a comparison from its saved results, without the data.",
    ),
    "show": ("show", "Describe a model: its labels, body, loss, decision rule and training data."),
    "suspects": (
        "suspects",
        "List the labels that look wrong or missing, and estimate how many of them are mistakes.",
    ),
    "sample": ("sample", "Choose the rows to label next: uncertain and diverse ones."),
    "serve": ("serve", "Serve a model over HTTP: POST /predict and /explain, /health, /metrics, and a page at /."),
    "export": ("export", "Export a model for other software: one ONNX graph, a Hugging Face folder, or plain weights."),
    "losses": ("catalogs", "List the losses, for `manyhot train --loss`."),
    "metrics": ("catalogs", "List the metrics, for `manyhot evaluate --metric` and `manyhot train --metric`."),
    "data": ("fetch", "Download public data sets."),
}
