// All groups of all topics: who is behind, by how much and since when.

import { get } from "../api/call"
import type { GroupPage, GroupRow } from "../api/types"
import { useWindow } from "../api/window"
import { Search } from "../parts/search"
import { Empty, Loading, Refused } from "../parts/states"
import { type Column, type Sort, Table } from "../parts/table"
import { Badge, GroupLink, N, Page, Rate, TopicLink } from "../parts/words"
import { amend, go, place, to } from "../route"
import { plural, span } from "../show/numbers"

const COLUMNS: Column<GroupRow>[] = [
	{
		id: "name",
		title: "Group",
		track: "minmax(110px, 1.6fr)",
		sort: true,
		cell: (one) => (
			<>
				<GroupLink topic={one.topic} group={one.group} />{" "}
				{one.paused !== null && (
					<Badge tone="warn" title={one.paused}>
						paused
					</Badge>
				)}
			</>
		),
	},
	{ id: "topic", title: "Topic", track: "minmax(90px, 1.6fr)", cell: (one) => <TopicLink name={one.topic} /> },
	{ id: "lag", title: "Lag", track: "minmax(60px, 1fr)", end: true, sort: true, cell: (one) => <N n={one.lag} /> },
	{
		id: "age",
		title: "Oldest",
		track: "minmax(64px, 1fr)",
		end: true,
		from: "m",
		cell: (one) => (one.lag > 0 ? span(one.lag_age_ms) : <span class="zero">–</span>),
	},
	{
		id: "in_flight",
		title: "In flight",
		track: "minmax(64px, 1fr)",
		end: true,
		from: "m",
		cell: (one) => <N n={one.in_flight} />,
	},
	{
		id: "retrying",
		title: "Retrying",
		track: "minmax(64px, 1fr)",
		end: true,
		from: "l",
		cell: (one) => <N n={one.retrying} tone="warn" />,
	},
	{
		id: "rate",
		title: "Settles",
		track: "minmax(64px, 1fr)",
		end: true,
		from: "m",
		cell: (one) => <Rate n={one.settled_rate} />,
	},
	{
		id: "members",
		title: "Members",
		track: "minmax(64px, 0.8fr)",
		end: true,
		from: "l",
		cell: (one) => <N n={one.members} tone={one.members === 0 && one.lag > 0 ? "bad" : "plain"} />,
	},
]

export function Groups() {
	const { q: filter = "", sort: by = "lag", order = "desc" } = place.value.query
	const sort: Sort = { by, down: order === "desc" }
	const list = useWindow<GroupRow>(
		JSON.stringify([filter, by, order]),
		async (offset, limit, signal) => {
			const found = await get<GroupPage>("/v1/groups", { filter, sort: by, order, offset, limit }, signal)
			return { total: found.total, rows: found.groups }
		},
		2_500,
	)
	const { total } = list
	return (
		<Page title="Groups" under={total === null ? "" : plural(total, "group")}>
			<div class="filters">
				<Search
					label="Filter groups"
					placeholder="Filter by group or topic"
					value={filter}
					onInput={(q) => amend({ q })}
				/>
			</div>
			<div class="panel">
				{list.error !== null && total === null ? (
					<Refused error={list.error} again={list.again} />
				) : total === null ? (
					<Loading />
				) : total === 0 ? (
					filter ? (
						<Empty title={`No group has “${filter}” in its name`} icon="search" />
					) : (
						<Empty title="No groups yet" icon="groups" command="trine consume orders --group billing --follow">
							A group shares the work of a topic among its members. It appears when its first consumer asks for
							messages.
						</Empty>
					)
				) : (
					<Table
						label="Groups"
						columns={COLUMNS}
						count={total}
						at={list.at}
						rowKey={(one) => `${one.topic}/${one.group}`}
						onView={list.onView}
						sort={sort}
						onSort={(next) => amend({ sort: next.by, order: next.down ? "desc" : "asc" })}
						onOpen={(one) => go(to(["topics", one.topic, "groups", one.group]))}
					/>
				)}
			</div>
		</Page>
	)
}
