// All topics: how fast, how much, how far behind. The rates of the rows on view are live.

import { useCallback, useEffect, useRef, useState } from "preact/hooks"
import { get } from "../api/call"
import { live, watch } from "../api/live"
import { may } from "../api/session"
import type { TopicPage, TopicRow } from "../api/types"
import { useWindow } from "../api/window"
import { Icon } from "../parts/icon"
import { Search } from "../parts/search"
import { Empty, Loading, Refused } from "../parts/states"
import { type Column, type Sort, Table } from "../parts/table"
import { Badge, Lanes, N, Page, Rate, TopicLink } from "../parts/words"
import { amend, go, place, to } from "../route"
import { bytes, count, plural } from "../show/numbers"
import { CreateTopic } from "./topic-options"

const LIVE_ROWS = 50

const COLUMNS: Column<TopicRow>[] = [
	{
		id: "name",
		title: "Topic",
		track: "minmax(140px, 2.4fr)",
		sort: true,
		cell: (row) => (
			<>
				<TopicLink name={row.name} /> {row.kind === "queue" && <Badge>queue</Badge>}
			</>
		),
	},
	{
		id: "rate",
		title: "In",
		track: "minmax(64px, 0.8fr)",
		end: true,
		sort: true,
		cell: (row) => <Rate n={row.published_rate} />,
	},
	{
		id: "settled",
		title: "Settled",
		track: "minmax(64px, 0.8fr)",
		end: true,
		from: "m",
		cell: (row) => <Rate n={row.settled_rate} />,
	},
	{
		id: "depth",
		title: "Depth",
		track: "minmax(64px, 0.9fr)",
		end: true,
		sort: true,
		cell: (row) => <N n={row.depth} />,
		told: "What waits for the slowest group, and for its time",
	},
	{
		id: "lag",
		title: "Lag",
		track: "minmax(64px, 0.9fr)",
		end: true,
		sort: true,
		from: "m",
		cell: (row) => <N n={row.lag} />,
	},
	{
		id: "flight",
		title: "In flight",
		track: "minmax(60px, 0.8fr)",
		end: true,
		from: "l",
		cell: (row) => <N n={row.in_flight} />,
	},
	{
		id: "scheduled",
		title: "Scheduled",
		track: "minmax(64px, 0.8fr)",
		end: true,
		from: "l",
		cell: (row) => <N n={row.scheduled} />,
	},
	{
		id: "dead",
		title: "Dead",
		track: "minmax(50px, 0.7fr)",
		end: true,
		from: "m",
		cell: (row) =>
			row.dead_letters > 0 ? (
				<a class="bad" href={to(["dead-letters", row.name])}>
					{count(row.dead_letters)}
				</a>
			) : (
				<N n={0} />
			),
	},
	{
		id: "messages",
		title: "Messages",
		track: "minmax(80px, 1fr)",
		end: true,
		from: "l",
		cell: (row) => <N n={row.messages} />,
	},
	{
		id: "size",
		title: "Size",
		track: "minmax(70px, 0.8fr)",
		end: true,
		sort: true,
		from: "m",
		cell: (row) => bytes(row.size_bytes),
	},
	{ id: "partitions", title: "Partitions", track: "76px", end: true, from: "xl", cell: (row) => count(row.partitions) },
	{ id: "groups", title: "Groups", track: "60px", end: true, from: "xl", cell: (row) => <N n={row.groups} /> },
	{
		id: "lanes",
		title: "Lanes",
		track: "76px",
		from: "xl",
		cell: (row) => <Lanes lanes={row.lanes} />,
		told: "How the messages lie in the priority lanes",
	},
]

export function Topics() {
	const { q: filter = "", sort: by = "name", order = "asc" } = place.value.query
	const [making, setMaking] = useState(false)
	const sort: Sort = { by, down: order === "desc" }
	const key = JSON.stringify([filter, by, order])
	const list = useWindow<TopicRow>(
		key,
		async (offset, limit, signal) => {
			const found = await get<TopicPage>("/v1/topic-summaries", { filter, sort: by, order, offset, limit }, signal)
			return { total: found.total, rows: found.topics }
		},
		5_000,
	)

	const timer = useRef<ReturnType<typeof setTimeout>>(undefined)
	useEffect(() => () => clearTimeout(timer.current), [])
	const { onView, at } = list
	const seen = useCallback(
		(start: number, end: number) => {
			onView(start, end)
			clearTimeout(timer.current)
			// The stream is opened anew for other rows: not before the scrolling has come to rest.
			timer.current = setTimeout(() => {
				const names: string[] = []
				for (let index = start; index < end && names.length < LIVE_ROWS; index++) {
					const row = at(index)
					if (row) names.push(row.name)
				}
				watch(names)
			}, 350)
		},
		[onView, at],
	)
	const now = live.value?.topics ?? {}
	const row = (index: number): TopicRow | undefined => {
		const found = at(index)
		const fresh = found && now[found.name]
		return found && fresh ? { ...found, ...fresh } : found
	}
	const total = list.total
	// biome-ignore lint/correctness/useExhaustiveDependencies: the first rows are there when the total is
	useEffect(() => seen(0, 30), [total !== null, key])

	return (
		<Page
			title="Topics"
			under={total === null ? "" : filter ? `${plural(total, "topic")} with “${filter}”` : plural(total, "topic")}
			actions={
				may("admin") && (
					<button type="button" class="button primary" onClick={() => setMaking(true)}>
						<Icon name="plus" /> Create topic
					</button>
				)
			}
		>
			<div class="filters">
				<Search label="Filter topics" placeholder="Filter by name" value={filter} onInput={(q) => amend({ q })} />
			</div>
			<div class="panel">
				{list.error !== null && total === null ? (
					<Refused error={list.error} again={list.again} />
				) : total === null ? (
					<Loading />
				) : total === 0 ? (
					filter ? (
						<Empty title={`No topic has “${filter}” in its name`} icon="search">
							<button type="button" class="button" onClick={() => amend({ q: "" })}>
								Show all topics
							</button>
						</Empty>
					) : (
						<Empty title="No topics yet" command="trine topic create orders --partitions 3">
							A topic is a stream of messages. Create one here, or on the command line:
						</Empty>
					)
				) : (
					<Table
						label="Topics"
						columns={COLUMNS}
						count={total}
						at={row}
						rowKey={(one) => one.name}
						onView={seen}
						sort={sort}
						onSort={(next) => amend({ sort: next.by, order: next.down ? "desc" : "asc" })}
						onOpen={(one) => go(to(["topics", one.name]))}
					/>
				)}
			</div>
			{making && <CreateTopic onClose={() => setMaking(false)} />}
		</Page>
	)
}
