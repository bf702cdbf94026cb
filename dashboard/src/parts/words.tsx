// Small things that stand in many places: ids that lead to a life, badges, lanes, times that tell both forms.

import type { ComponentChildren } from "preact"
import { lifeOf, to } from "../route"
import { count, rate as rateText } from "../show/numbers"
import { ago, brief, moment } from "../show/time"

export function Id({ id, text }: { id: string; text?: string }) {
	return (
		<a class="id" href={lifeOf(id)} title={`The life of ${id}`}>
			{text ?? id}
		</a>
	)
}

export const TopicLink = ({ name }: { name: string }) => (
	<a class="name" href={to(["topics", name])} title={name}>
		{name}
	</a>
)

export const GroupLink = ({ topic, group }: { topic: string; group: string }) => (
	<a class="name" href={to(["topics", topic, "groups", group])} title={`${group} of ${topic}`}>
		{group}
	</a>
)

type Tone = "ok" | "warn" | "bad" | "info" | "plain"

export function Badge({
	tone = "plain",
	children,
	title,
}: {
	tone?: Tone
	children: ComponentChildren
	title?: string
}) {
	return (
		<span class={`badge ${tone}`} title={title}>
			{children}
		</span>
	)
}

/** Zero is quiet: the eye should find what is not. */
export function N({ n, tone }: { n: number | null | undefined; tone?: Tone }) {
	if (n === null || n === undefined) return <span class="zero">–</span>
	return <span class={n === 0 ? "zero" : (tone ?? "")}>{count(n)}</span>
}

export function Rate({ n }: { n: number }) {
	return <span class={n === 0 ? "zero" : ""}>{rateText(n)}/s</span>
}

export function Time({ ms, millis }: { ms: number; millis?: boolean }) {
	return (
		<time dateTime={new Date(ms).toISOString()} title={`${moment(ms, true)} (${ago(ms)})`}>
			{brief(ms, Date.now(), millis)}
		</time>
	)
}

export function Ago({ ms }: { ms: number }) {
	return (
		<time dateTime={new Date(ms).toISOString()} title={moment(ms, true)}>
			{ago(ms)}
		</time>
	)
}

export const Lane = ({ name }: { name: string }) => <span class={`lane lane-${name}`}>{name}</span>

/** How messages lie in the lanes, as one bar. */
export function Lanes({ lanes }: { lanes: Record<string, number> }) {
	const all = Object.values(lanes).reduce((sum, n) => sum + n, 0)
	const told = Object.entries(lanes)
		.map(([name, n]) => `${name} ${count(n)}`)
		.join(" · ")
	return (
		<span class="lanes" title={told} role="img" aria-label={`Lanes: ${told}`}>
			{all > 0 &&
				Object.entries(lanes).map(([name, n]) =>
					n > 0 ? <i key={name} class={`lane-${name}`} style={{ width: `${(n / all) * 100}%` }} /> : null,
				)}
		</span>
	)
}

export function Facts({ facts }: { facts: [string, ComponentChildren][] }) {
	return (
		<dl class="facts">
			{facts.map(([name, value]) => (
				<div key={name}>
					<dt>{name}</dt>
					<dd>{value}</dd>
				</div>
			))}
		</dl>
	)
}

interface PanelProps {
	title?: ComponentChildren
	actions?: ComponentChildren
	children: ComponentChildren
	flush?: boolean
	class?: string
}

export function Panel({ title, actions, children, flush, class: more = "" }: PanelProps) {
	return (
		<section class={`panel ${more}`}>
			{(title || actions) && (
				<header class="panel-head">
					<h2>{title}</h2>
					<div class="actions">{actions}</div>
				</header>
			)}
			<div class={flush ? "panel-body flush" : "panel-body"}>{children}</div>
		</section>
	)
}

interface PageProps {
	title: ComponentChildren
	under?: ComponentChildren
	actions?: ComponentChildren
	children: ComponentChildren
}

export function Page({ title, under, actions, children }: PageProps) {
	return (
		<>
			<header class="page-head">
				<div class="grow">
					<h1>{title}</h1>
					{under && <p class="under">{under}</p>}
				</div>
				{actions && <div class="actions">{actions}</div>}
			</header>
			{children}
		</>
	)
}
