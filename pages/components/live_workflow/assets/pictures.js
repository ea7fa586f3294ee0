// Draws the parts of a message.

import { BASE, PACKED } from "./base.js"
import { el } from "./dom.js"
import { count, shortHash } from "./format.js"
import { partInWords, partsOf, typeOf } from "./message_parts.js"
import { visible } from "./text.js"

const SHA256 = /^[0-9a-f]{64}$/

export const partElements = (content) =>
  partsOf(content).map((part) =>
    part.kind === "image" ? picture(part) : el("pre", { class: "raw", dir: "auto" }, visible(partInWords(part))),
  )

// Shows an image with what the record says of it. A click opens it by itself.
export function picture(image) {
  const said = `${typeOf(image)} · ${image.width} × ${image.height} · ${count(Math.max(1, image.size_bytes / 1000))} kB`
  const caption = el("figcaption", { class: "muted small" }, `${said} · sha256 ${shortHash(image.sha256)}`)
  if (!SHA256.test(image.sha256)) return el("figure", { class: "picture" }, caption)
  const url = PACKED ? PACKED.image(image.sha256) : new URL(`api/contents/${image.sha256}`, BASE)
  if (url === null) return el("figure", { class: "picture" }, caption)
  const shown = el("img", { src: url, alt: `Image, ${image.width} by ${image.height} pixels`, loading: "lazy" })
  shown.addEventListener("error", () =>
    shown.replaceWith(el("p", { class: "muted" }, "This image is not kept any more.")),
  )
  if (PACKED) return el("figure", { class: "picture" }, shown, caption) // no browser opens such an address by itself
  return el("figure", { class: "picture" }, el("a", { href: url, target: "_blank", rel: "noopener" }, shown), caption)
}
