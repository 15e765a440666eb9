"""``attnviz registers``."""

from __future__ import annotations

from attnviz.cli.commands.figure import INPUTS
from attnviz.cli.panels import DRAWING, IMAGES, MODEL, PRINT, Given, Panel, PrintRequest
from attnviz.cli.report import Report
from attnviz.cli.run import model_request
from attnviz.domain import DrawStyle
from attnviz.domain.registers import RegisterSearch, RegistersRequest
from attnviz.domain.requests import OUTPUT_PANEL, InputRequest


def registers(given: Given, inputs: INPUTS) -> int:
    """Find the neurons that write outlier patches, for --test-registers.

    Patches of huge norm make spots of attention maps. A list of the MLP neurons that write them,
    and a figure: norms and attention without and with registers that take them over, the
    histogram of norms with the threshold, the strongest neurons, maps before and after.

    Example: attnviz registers photos/ --model dinov2_vitl14 -o neurons.json
    """
    given.refuse(DrawStyle, ("alpha",), "registers")
    request: RegistersRequest = given.make(
        RegistersRequest,
        model=model_request(given),
        inputs=given.make(InputRequest, inputs=tuple(inputs)),
        search=given.make(RegisterSearch),
        style=given.make(DrawStyle),
    )
    # torch comes with it.
    from attnviz.runs.registers import registers as events

    printing: PrintRequest = given.make(PrintRequest)
    return Report(as_json=printing.json, quiet=printing.quiet).consume(events(request))


PANELS = (
    Panel(None, RegisterSearch),
    MODEL.without("random-weights", "test-registers", "register-count", "verify"),
    IMAGES,
    DRAWING,
    Panel(OUTPUT_PANEL, RegistersRequest),
    PRINT,
)
