"""The answer of `headroom`."""

from __future__ import annotations

import typer

from dra_extender.cli.answers.answer import Answer, answered, complaining, text_of_option, unanswerable
from dra_extender.cli.answers.watching import ask
from dra_extender.cli.cluster import Snapshot
from dra_extender.cli.output import NO, YES, terminal_width
from dra_extender.cli.questions import HeadroomOptions
from dra_extender.insight.compaction.compaction import request_of_claims
from dra_extender.insight.headroom import HeadroomReport, class_request, headroom
from dra_extender.insight.manifests import claims_of
from dra_extender.plaintext import wrapped


@complaining
async def answer(given: HeadroomOptions) -> int:
    """Print how many more pods fit. Returns the exit status."""
    if bool(given.device_class) == bool(given.filename):
        raise typer.BadParameter("name a DeviceClass, or a file with -f", param_hint="CLASS")
    text = text_of_option(given.filename)

    def answering(snapshot: Snapshot) -> Answer:
        view = snapshot.view()
        with unanswerable():
            if given.filename:
                request = request_of_claims(view, given.filename, claims_of(given.filename, text))
                what, claims = f"pods with {request.name}", request.claims
            else:
                what, claims = class_request(view, given.device_class or "", given.count)
        report = HeadroomReport(now=headroom(view, what, claims, most=given.limit))
        return answered(
            report,
            given.output,
            lambda: wrapped(report.lines(), terminal_width()),
            YES if report.fits else NO,
        )

    return await ask(given, answering, watch=given.watch)
