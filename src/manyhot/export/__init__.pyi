"""Public names of ``manyhot.export`` and where they live."""

from manyhot.export.folding import fold_link as fold_link
from manyhot.export.folding import fold_rule as fold_rule
from manyhot.export.huggingface_folder import export_huggingface as export_huggingface
from manyhot.export.onnx_file import Parity as Parity
from manyhot.export.onnx_file import compare_onnx as compare_onnx
from manyhot.export.onnx_file import export_onnx as export_onnx
from manyhot.export.plain_weights import export_weights as export_weights
from manyhot.export.vectoriser import vectoriser_json as vectoriser_json
