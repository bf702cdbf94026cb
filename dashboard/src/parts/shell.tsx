// The frame: navigation at the side, the way here and the search on top, and whether the numbers are live.

import { signal } from "@preact/signals"
import { useEffect } from "preact/hooks"
import { link, live } from "../api/live"
import { logOut, session } from "../api/session"
import { place, to } from "../route"
import { count, short, span } from "../show/numbers"
import { Icon, type IconName, Logo } from "./icon"
import { openJump } from "./jump"
import { type Theme, theme } from "./theme"
import { failed } from "./toast"

const menu = signal(false)

interface Entry {
	at: string
	text: string
	icon: IconName
	of: string[]
	count?: () => number | undefined
}

const ENTRIES: Entry[] = [
	{ at: "overview", text: "Overview", icon: "overview", of: ["overview"] },
	{ at: "topics", text: "Topics", icon: "topics", of: ["topics"] },
	{ at: "groups", text: "Groups", icon: "groups", of: ["groups"] },
	{
		at: "dead-letters",
		text: "Dead letters",
		icon: "letters",
		of: ["dead-letters"],
		count: () => live.value?.totals.dead_lettered,
	},
	{ at: "schedule", text: "Schedule", icon: "schedule", of: ["schedule"], count: () => live.value?.totals.scheduled },
	{ at: "traces", text: "Trace", icon: "trace", of: ["traces", "life"] },
	{ at: "pipelines", text: "Pipelines", icon: "pipelines", of: ["pipelines"] },
]

export function Sidebar() {
	const here = place.value.segments[0] ?? "overview"
	// biome-ignore lint/correctness/useExhaustiveDependencies: another place closes the menu
	useEffect(() => {
		menu.value = false
	}, [place.value])
	useEffect(() => {
		const close = (event: KeyboardEvent) => {
			if (event.key === "Escape") menu.value = false
		}
		addEventListener("keydown", close)
		return () => removeEventListener("keydown", close)
	}, [])
	return (
		<>
			{menu.value && (
				<button type="button" class="veil" aria-label="Close the menu" onClick={() => (menu.value = false)} />
			)}
			<aside class={menu.value ? "sidebar open" : "sidebar"}>
				<a class="brand" href="#/overview">
					<Logo /> Trine
				</a>
				<nav aria-label="Pages">
					{ENTRIES.map((one) => {
						const n = one.count?.() ?? 0
						return (
							<a key={one.at} href={to([one.at])} aria-current={one.of.includes(here) ? "page" : undefined}>
								<Icon name={one.icon} />
								<span class="grow">{one.text}</span>
								{n > 0 && <span class={one.at === "dead-letters" ? "nav-count bad" : "nav-count"}>{short(n)}</span>}
							</a>
						)
					})}
				</nav>
				<span class="grow" />
				<Foot />
			</aside>
		</>
	)
}

function Foot() {
	const broker = live.value?.broker
	const who = session.value
	return (
		<div class="foot">
			{who?.keys && who.authenticated && (
				<div class="who">
					<Icon name="key" />
					<span class="grow">
						<b>{who.id}</b>
						<small>
							{who.role}
							{who.topics.length > 0 && who.topics[0] !== "*" ? ` of ${who.topics.join(", ")}` : ""}
						</small>
					</span>
					<button
						type="button"
						class="icon-button"
						title="Log out"
						aria-label="Log out"
						onClick={() => logOut().catch(failed)}
					>
						<Icon name="out" />
					</button>
				</div>
			)}
			<ThemeSwitch />
			<div class="version">
				<span>{broker ? `Trine ${broker.version}` : "Trine"}</span>
				<span>{broker ? `up ${span(broker.uptime_s * 1000)}` : ""}</span>
				<a href="/docs" target="_blank" rel="noreferrer">
					API
				</a>
			</div>
		</div>
	)
}

const THEMES: [Theme, IconName, string][] = [
	["auto", "auto", "As the system"],
	["light", "sun", "Light"],
	["dark", "moon", "Dark"],
]

function ThemeSwitch() {
	return (
		<fieldset class="segments small" aria-label="Colours">
			{THEMES.map(([name, icon, told]) => (
				<button
					key={name}
					type="button"
					aria-pressed={theme.value === name}
					title={told}
					aria-label={told}
					onClick={() => (theme.value = name)}
				>
					<Icon name={icon} size={14} />
				</button>
			))}
		</fieldset>
	)
}

const TITLES: Record<string, string> = Object.fromEntries(ENTRIES.map((one) => [one.at, one.text]))

export function Topbar() {
	const [first = "overview", ...rest] = place.value.segments
	const title = [...rest]
		.reverse()
		.concat(TITLES[first] ?? "Trine", "Trine")
		.slice(0, 3)
		.join(" · ")
	useEffect(() => {
		document.title = title
	}, [title])
	return (
		<div class="topbar">
			<button
				type="button"
				class="icon-button menu-button"
				aria-label="Menu"
				aria-expanded={menu.value}
				onClick={() => (menu.value = true)}
			>
				<Icon name="menu" />
			</button>
			<Crumbs first={first} rest={rest} />
			<span class="grow" />
			<button type="button" class="search-button" onClick={openJump}>
				<Icon name="search" size={14} />
				<span class="grow">Topic, group or message id</span>
				<kbd>/</kbd>
			</button>
			<LinkPill />
		</div>
	)
}

function Crumbs({ first, rest }: { first: string; rest: string[] }) {
	const steps: [string, string][] = []
	if (first === "life") steps.push(["Trace", to(["traces"])], [rest.join("/"), ""])
	else {
		steps.push([TITLES[first] ?? first, to([first])])
		rest.forEach((one, index) => {
			if (first === "topics" && index === 1 && (one !== "groups" || rest.length === 2)) return // a tab, not a step
			steps.push([one, to([first, ...rest.slice(0, index + 1)])])
		})
	}
	return (
		<nav class="crumbs" aria-label="Where you are">
			{steps.map(([text, href], index) => (
				<span key={href || text}>{index < steps.length - 1 ? <a href={href}>{text}</a> : <b>{text}</b>}</span>
			))}
		</nav>
	)
}

function LinkPill() {
	const state = link.value
	const rate = live.value?.totals.published_rate ?? 0
	const text = state === "up" ? "Live" : state === "lost" ? "Connection lost" : "Connecting"
	return (
		<span class={`pill ${state}`} role="status" title={state === "up" ? `${count(rate)} messages/s in` : text}>
			<i /> <span>{text}</span>
		</span>
	)
}

export function LostBanner() {
	if (link.value !== "lost") return null
	return (
		<div class="banner" role="alert">
			<span class="spinner" aria-hidden="true" />
			<span>
				<b>Connection lost, trying again.</b> What you see is as it was. If the broker is stopped, start it with{" "}
				<code>trine serve</code>.
			</span>
		</div>
	)
}
