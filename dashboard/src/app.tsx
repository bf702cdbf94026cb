// The frame around every page: who looks, where one is, whether the numbers are live, and the page itself.

import { lazy, Suspense } from "preact/compat"
import { useEffect, useState } from "preact/hooks"
import { startLive, watch } from "./api/live"
import { mayLookIn, openSession, session, watchRefusals } from "./api/session"
import { Login } from "./pages/login"
import { Overview } from "./pages/overview"
import { Topics } from "./pages/topics"
import { Jump } from "./parts/jump"
import { LostBanner, Sidebar, Topbar } from "./parts/shell"
import { Empty, Loading, Refused } from "./parts/states"
import { Toasts } from "./parts/toast"
import { place } from "./route"

const TopicPage = lazy(() => import("./pages/topic").then((all) => all.TopicPage))
const GroupPage = lazy(() => import("./pages/group").then((all) => all.GroupPage))
const Groups = lazy(() => import("./pages/groups").then((all) => all.Groups))
const Letters = lazy(() => import("./pages/letters").then((all) => all.Letters))
const Schedule = lazy(() => import("./pages/schedule").then((all) => all.Schedule))
const Pipelines = lazy(() => import("./pages/pipelines").then((all) => all.Pipelines))
const Traces = lazy(() => import("./pages/traces").then((all) => all.Traces))
const Life = lazy(() => import("./pages/life").then((all) => all.Life))

function Routed() {
	const [first = "overview", ...rest] = place.value.segments
	const [topic, part, group] = rest
	if (first === "overview") return <Overview />
	if (first === "topics" && topic === undefined) return <Topics />
	if (first === "topics" && topic && part === "groups" && group)
		return <GroupPage key={`${topic}/${group}`} topic={topic} group={group} />
	if (first === "topics" && topic) return <TopicPage key={topic} name={topic} tab={part ?? "messages"} />
	if (first === "groups") return <Groups />
	if (first === "dead-letters") return <Letters {...(topic ? { topic } : {})} />
	if (first === "schedule") return <Schedule />
	if (first === "pipelines") return <Pipelines {...(topic ? { run: topic } : {})} />
	if (first === "traces") return <Traces />
	if (first === "life") return <Life key={rest.join("/")} id={rest.join("/")} />
	return (
		<Empty title="There is no such page" icon="search">
			The address leads nowhere. <a href="#/">To the overview</a>
		</Empty>
	)
}

export function App() {
	const [error, setError] = useState<unknown>(null)
	const [turn, setTurn] = useState(0)
	const section = place.value.segments.join("/")

	// biome-ignore lint/correctness/useExhaustiveDependencies: turn says that it is to be tried again
	useEffect(() => {
		setError(null)
		openSession().catch(setError)
	}, [turn])
	useEffect(() => {
		const stops = [watchRefusals(), startLive()]
		return () => {
			for (const stop of stops) stop()
		}
	}, [])
	// A new page begins at its top, and needs only the totals until it says otherwise.
	// biome-ignore lint/correctness/useExhaustiveDependencies: the section is what changes
	useEffect(() => scrollTo(0, 0), [section])
	const first = place.value.segments[0] ?? "overview"
	useEffect(() => {
		if (first !== "overview" && first !== "topics") watch([])
	}, [first])
	useEffect(() => {
		if (error === null || session.value !== null) return
		const timer = setTimeout(() => setTurn(turn + 1), 2_000) // the broker may be starting
		return () => clearTimeout(timer)
	}, [error, turn])

	if (session.value === null)
		return (
			<main class="alone">
				{error === null ? (
					<Loading what="Asking the broker" />
				) : (
					<Refused error={error} again={() => setTurn(turn + 1)} />
				)}
			</main>
		)
	if (!mayLookIn.value)
		return (
			<>
				<Login />
				<Toasts />
			</>
		)
	return (
		<div class="shell">
			<button type="button" class="skip" onClick={() => document.getElementById("main")?.focus()}>
				To the content
			</button>
			<Sidebar />
			<div class="column">
				<Topbar />
				<LostBanner />
				<main id="main" tabIndex={-1}>
					<Suspense fallback={<Loading />}>
						<Routed />
					</Suspense>
				</main>
			</div>
			<Jump />
			<Toasts />
		</div>
	)
}
