// What is opened beside a list, or over it on a phone: closed by its button and by Esc.

import type { ComponentChildren } from "preact"
import { useEffect } from "preact/hooks"
import { Icon } from "./icon"
import { Id } from "./words"

interface BesideProps {
	id: string
	label: string
	onClose: () => void
	children: ComponentChildren
}

export function Beside({ id, label, onClose, children }: BesideProps) {
	useEffect(() => {
		const press = (event: KeyboardEvent) => {
			// A dialog above it is meant first.
			if (event.key === "Escape" && !document.querySelector("dialog[open]")) onClose()
		}
		addEventListener("keydown", press)
		return () => removeEventListener("keydown", press)
	}, [onClose])
	return (
		<aside class="panel one" aria-label={label}>
			<header class="panel-head">
				<h2 class="grow cut">
					<Id id={id} />
				</h2>
				<button type="button" class="icon-button" aria-label="Close the message" onClick={onClose}>
					<Icon name="close" />
				</button>
			</header>
			<div class="panel-body">{children}</div>
		</aside>
	)
}
