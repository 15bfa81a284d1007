"""An ONNX graph, written node by node. All numbers are 64-bit: a threshold of 32 bits would change labels."""

from typing import Any

import numpy as np

from quorate.core.errors import InvalidInput

__all__ = ["OPSETS", "Graph", "import_onnx"]

OPSETS = {"": 18, "ai.onnx.ml": 3}
_IR_VERSION = 9  # of 2023: what runtimes of that year and later read


def import_onnx(package: str = "onnx") -> Any:
    """Return a package of the extra `onnx`, or say how to install it."""
    from importlib import import_module  # noqa: PLC0415

    try:
        return import_module(package)
    except ImportError as error:
        raise InvalidInput(f"export to ONNX needs {error.name}; install it: pip install 'quorate[onnx]'") from None


class Graph:
    """Nodes, constants, inputs and outputs. A value is known by its name."""

    def __init__(self) -> None:
        self._onnx = import_onnx()
        self._nodes: list[Any] = []
        self._constants: list[Any] = []
        self._inputs: list[Any] = []
        self._outputs: list[Any] = []

    def input(self, name: str, kind: str, width: int) -> str:
        """Add an input of rows, "DOUBLE" or "STRING"."""
        self._inputs.append(self._value(name, kind, [None, width]))
        return name

    def output(self, name: str, value: str, kind: str, shape: list[int | None]) -> None:
        """Give a value out under a name."""
        self._nodes.append(self._onnx.helper.make_node("Identity", [value], [name]))
        self._outputs.append(self._value(name, kind, shape))

    def constant(self, values: Any) -> str:
        """Add an array of numbers, truth values or texts."""
        name, array = f"c{len(self._constants)}", np.asarray(values)
        array = array.astype(object) if array.dtype.kind in "US" else array
        self._constants.append(self._onnx.numpy_helper.from_array(array, name))
        return name

    def node(self, kind: str, *inputs: str, domain: str = "", **settings: Any) -> str:
        """Add a node with one output, and return its name."""
        name = f"v{len(self._nodes)}"
        self._nodes.append(self._onnx.helper.make_node(kind, list(inputs), [name], domain=domain, **settings))
        return name

    def cast(self, value: str, kind: str) -> str:
        """Return a value as another type."""
        return self.node("Cast", value, to=getattr(self._onnx.TensorProto, kind))

    def columns(self, rows: str, places: Any) -> str:
        """Return some columns of rows."""
        return self.node("Gather", rows, self.constant(np.asarray(places, dtype=np.int64)), axis=1)

    def numbers(self, kind: str, value: str, numbers: Any) -> str:
        """Return a node of a value and constant 64-bit numbers."""
        return self.node(kind, value, self.constant(np.asarray(numbers, dtype=np.float64)))

    def model(self, facts: dict[str, str]) -> Any:
        """Return the model, with facts about it."""
        helper = self._onnx.helper
        graph = helper.make_graph(self._nodes, "quorate", self._inputs, self._outputs, self._constants)
        opsets = [helper.make_opsetid(domain, version) for domain, version in OPSETS.items()]
        made = helper.make_model(graph, opset_imports=opsets, producer_name="quorate", ir_version=_IR_VERSION)
        helper.set_model_props(made, facts)
        return made

    def _value(self, name: str, kind: str, shape: list[int | None]) -> Any:
        return self._onnx.helper.make_tensor_value_info(name, getattr(self._onnx.TensorProto, kind), shape)
