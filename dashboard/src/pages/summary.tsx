// What a run says of itself: numbers as facts, lists of records as tables, the rest as JSON.

import { JsonTree } from "../parts/json"
import { Panel } from "../parts/words"
import type { Json } from "../show/content"
import { bytes, count, percent, span } from "../show/numbers"

const ROWS = 200

type Rows = Record<string, Json>[]

const words = (name: string): string => (name[0]?.toUpperCase() + name.slice(1)).replace(/_ms$/, "").replace(/_/g, " ")
const isPlain = (value: unknown): value is string | number | boolean | null =>
	value === null || typeof value !== "object"
export const isRows = (value: unknown): value is Rows =>
	Array.isArray(value) &&
	value.length > 0 &&
	value.every((one) => one !== null && typeof one === "object" && !Array.isArray(one))

/** A value by what its name says it is: `ack_p99_ms`, `failed_share`, `bytes`, `seconds`. */
export function shown(value: Json | undefined, name = ""): string {
	if (value === undefined || value === null) return "–"
	if (typeof value === "number") {
		if (name.endsWith("_ms")) return span(value)
		if (name.endsWith("_share")) return percent(value)
		if (name.endsWith("bytes")) return bytes(value)
		if (name === "seconds") return span(value * 1000)
		return Number.isInteger(value) ? count(value) : value.toLocaleString("en", { maximumFractionDigits: 2 })
	}
	return typeof value === "object" ? JSON.stringify(value) : String(value)
}

export function Summary({ summary }: { summary: Record<string, unknown> }) {
	const entries = Object.entries(summary)
	const plain = entries.filter(([, value]) => isPlain(value))
	const tables = entries.filter(([, value]) => isRows(value)) as [string, Rows][]
	const rest = entries.filter(([, value]) => !isPlain(value) && !isRows(value))
	return (
		<>
			{plain.length > 0 && (
				<Panel title="Result">
					<dl class="facts">
						{plain.map(([name, value]) => (
							<div key={name}>
								<dt>{words(name)}</dt>
								<dd>{shown(value as Json, name)}</dd>
							</div>
						))}
					</dl>
				</Panel>
			)}
			{tables.map(([name, rows]) => (
				<Panel key={name} title={words(name)} flush>
					<Grid rows={rows} />
				</Panel>
			))}
			{rest.map(([name, value]) => (
				<Panel key={name} title={words(name)}>
					<div class="content-body">
						<JsonTree value={value as Json} />
					</div>
				</Panel>
			))}
		</>
	)
}

export function Grid({ rows }: { rows: Rows }) {
	const names = [...new Set(rows.flatMap((row) => Object.keys(row)))]
	const numeric = (name: string) =>
		rows.every((row) => row[name] === null || row[name] === undefined || typeof row[name] === "number")
	return (
		<div class="scrolled">
			<table class="plain">
				<thead>
					<tr>
						{names.map((name) => (
							<th key={name} class={numeric(name) ? "end" : ""}>
								{words(name)}
							</th>
						))}
					</tr>
				</thead>
				<tbody>
					{rows.slice(0, ROWS).map((row, index) => (
						<tr key={index}>
							{names.map((name) => (
								<td key={name} class={numeric(name) ? "end" : ""}>
									{shown(row[name], name)}
								</td>
							))}
						</tr>
					))}
				</tbody>
			</table>
		</div>
	)
}
