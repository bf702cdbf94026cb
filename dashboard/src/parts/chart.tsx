// Lines over the last minutes, drawn by uPlot on a canvas. New samples move the picture; nothing is built anew.

import { useEffect, useRef } from "preact/hooks"
import uPlot from "uplot"
import "uplot/dist/uPlot.min.css"
import { short } from "../show/numbers"
import { clock } from "../show/time"
import { colour, repaint } from "./theme"

export interface Line {
	label: string
	/** A colour of the style sheet. */
	colour: string
	fill?: boolean
	show?: (value: number) => string
}

/** A few samples are not stretched over the whole picture. */
const LEAST_SECONDS = 60

interface ChartProps {
	label: string
	lines: Line[]
	/** Seconds since the epoch, then one list for each line. */
	data: (number | null)[][]
	height?: number
}

export function Chart({ label, lines, data, height = 180 }: ChartProps) {
	const box = useRef<HTMLDivElement>(null)
	const plot = useRef<uPlot | null>(null)
	const latest = useRef(data)
	latest.current = data
	const paint = repaint.value
	const names = lines.map((one) => one.label).join()

	// biome-ignore lint/correctness/useExhaustiveDependencies: drawn anew for other colours and other lines only
	useEffect(() => {
		const parent = box.current
		if (parent === null) return
		const made = new uPlot(options(lines, parent.clientWidth, height), latest.current as uPlot.AlignedData, parent)
		plot.current = made
		const sized = new ResizeObserver(() => made.setSize({ width: parent.clientWidth, height }))
		sized.observe(parent)
		return () => {
			sized.disconnect()
			made.destroy()
			plot.current = null
		}
	}, [paint, names, height])

	useEffect(() => {
		plot.current?.setData(data as uPlot.AlignedData)
	}, [data])

	return <div ref={box} class="chart" role="img" aria-label={label} />
}

function options(lines: Line[], width: number, height: number): uPlot.Options {
	const faint = colour("--line")
	const words = colour("--muted")
	const axis = {
		stroke: words,
		grid: { stroke: faint, width: 1 },
		ticks: { show: false },
		font: "11px Inter Variable, sans-serif",
	}
	return {
		width: Math.max(width, 100),
		height,
		cursor: { y: false, points: { size: 7 } },
		legend: { live: true },
		padding: [8, 8, 0, 0],
		scales: {
			x: { range: (_, least, most) => [Math.min(least, most - LEAST_SECONDS), most] },
			y: { range: (_, __, most) => [0, Math.max(most * 1.08, 1)] },
		},
		axes: [
			{
				...axis,
				grid: { show: false },
				space: 70,
				size: 26,
				values: (_, ticks) => ticks.map((one) => clock(one * 1000)),
			},
			{ ...axis, size: 48, space: 36, values: (_, ticks) => ticks.map(short) },
		],
		series: [
			{ label: "At", value: (_, at) => (at === null ? "now" : clock(at * 1000)) },
			...lines.map((one) => {
				const stroke = colour(one.colour)
				return {
					label: one.label,
					stroke,
					width: 1.75,
					points: { show: false },
					// Away from the picture the legend tells the newest.
					value: (plot: uPlot, at: number | null, series: number) => {
						const value = at ?? plot.data[series]?.at(-1)
						return value === null || value === undefined ? "–" : (one.show ?? short)(value)
					},
					...(one.fill ? { fill: faded(stroke) } : {}),
				}
			}),
		],
	}
}

function faded(stroke: string): string {
	return stroke.replace(/^rgb\((.*)\)$/, "rgba($1, 0.12)")
}
