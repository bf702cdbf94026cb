// A report's numbers as pictures: what came, what was settled, how far groups were behind; then by group and by reason.

import { useMemo } from "preact/hooks"
import type { Report } from "../api/types"
import { Chart, type Line } from "../parts/chart"
import { Panel } from "../parts/words"
import { span } from "../show/numbers"
import { Grid, isRows, Summary } from "./summary"

const PUBLISHED: Line[] = [{ label: "Published", colour: "--c-published", fill: true }]
const FLOW: Line[] = [
	{ label: "Delivered", colour: "--c-delivered" },
	{ label: "Acked", colour: "--c-settled", fill: true },
	{ label: "Failed", colour: "--c-dead" },
]
const LAG: Line[] = [{ label: "Lag", colour: "--c-pending", fill: true }]

function columns(rows: number[][], fields: number): (number | null)[][] {
	return [
		rows.map(([at = 0]) => at / 1000),
		...Array.from({ length: fields }, (_, n) => rows.map((row) => row[n + 1] ?? null)),
	]
}

export function ReportView({ report }: { report: Report }) {
	const published = useMemo(() => columns(report.published, 1), [report])
	const flow = useMemo(() => columns(report.flow, 3), [report])
	const lag = useMemo(() => columns(report.lag, 1), [report])
	const window = `in each ${span(report.window_ms)}`
	return (
		<>
			<Summary summary={report.summary} />
			<div class="three">
				<Panel title={`Published ${window}`}>
					<Chart label={`Messages published ${window}`} lines={PUBLISHED} data={published} height={150} />
				</Panel>
				<Panel title={`Delivered ${window}`}>
					<Chart label={`Messages delivered, acked and failed ${window}`} lines={FLOW} data={flow} height={150} />
				</Panel>
				<Panel title="Lag">
					<Chart label="Messages not settled yet" lines={LAG} data={lag} height={150} />
				</Panel>
			</div>
			{isRows(report.groups) && (
				<Panel title="By group" flush>
					<Grid rows={report.groups} />
				</Panel>
			)}
			{isRows(report.reasons) && (
				<Panel title="Why messages failed" flush>
					<Grid rows={report.reasons} />
				</Panel>
			)}
		</>
	)
}
