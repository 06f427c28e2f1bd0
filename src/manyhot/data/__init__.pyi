"""Public names of ``manyhot.data`` and where they live."""

from manyhot.data.examples import Examples as Examples
from manyhot.data.examples import concatenate_examples as concatenate_examples
from manyhot.data.files.input_file import fingerprint as fingerprint
from manyhot.data.files.problems import DataError as DataError
from manyhot.data.inspect import Inspection as Inspection
from manyhot.data.inspect import inspect_examples as inspect_examples
from manyhot.data.read import read_examples as read_examples
from manyhot.data.sets.digit_scenes import DigitScenes as DigitScenes
from manyhot.data.sets.digit_scenes import digit_scenes as digit_scenes
from manyhot.data.sets.openml import fetch_openml_examples as fetch_openml_examples
from manyhot.data.spans.alignment import align_examples as align_examples
from manyhot.data.spans.examples import SpanExamples as SpanExamples
from manyhot.data.spans.examples import TextSpan as TextSpan
from manyhot.data.spans.read import read_span_examples as read_span_examples
from manyhot.data.spans.write import write_span_examples as write_span_examples
from manyhot.data.tables.missing import fill_missing as fill_missing
from manyhot.data.write import write_examples as write_examples
