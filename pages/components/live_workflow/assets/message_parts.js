// The parts of a message: text, images, tool calls and their results.

import { BASE } from "./base.js"
import { el } from "./dom.js"
import { count, estimateTokens, shortHash } from "./format.js"
import { visible } from "./text.js"

const SHA256 = /^[0-9a-f]{64}$/

export const partsOf = (content) => (typeof content === "string" ? [{ kind: "text", text: content }] : content)

export const imagesIn = (content) => partsOf(content).filter(({ kind }) => kind === "image")

// Mirrors message_parts.in_words.
export const inWords = (content) => partsOf(content).map(partInWords).join("\n\n")

function partInWords(part) {
  if (part.kind === "text") return part.text
  if (part.kind === "image")
    return `[image: ${typeOf(part)}, ${part.width} x ${part.height} pixels, sha256 ${part.sha256.slice(0, 12)}]`
  if (part.kind === "tool_call") return `[tool call ${part.call_id}: ${part.name}(${part.arguments})]`
  return `[${part.is_error ? "error" : "result"} of tool call ${part.call_id}: ${part.text}]`
}

const typeOf = ({ media_type: type }) => type.split("/")[1].toUpperCase()

// Mirrors ImagePart.tokens.
export const contentTokens = (content) =>
  partsOf(content).reduce((sum, part) => {
    const tokens = part.kind === "image" ? Math.min(Math.ceil((part.width * part.height) / 750), 1600) : null
    return sum + (tokens ?? estimateTokens(partInWords(part)))
  }, 0)

export const partElements = (content) =>
  partsOf(content).map((part) =>
    part.kind === "image" ? picture(part) : el("pre", { class: "raw", dir: "auto" }, visible(partInWords(part))),
  )

// Shows an image with what the record says of it. A click opens it by itself.
export function picture(image) {
  const said = `${typeOf(image)} · ${image.width} × ${image.height} · ${count(Math.max(1, image.size_bytes / 1000))} kB`
  const caption = el("figcaption", { class: "muted small" }, `${said} · sha256 ${shortHash(image.sha256)}`)
  if (!SHA256.test(image.sha256)) return el("figure", { class: "picture" }, caption)
  const url = new URL(`api/contents/${image.sha256}`, BASE)
  const shown = el("img", { src: url, alt: `Image, ${image.width} by ${image.height} pixels`, loading: "lazy" })
  shown.addEventListener("error", () =>
    shown.replaceWith(el("p", { class: "muted" }, "This image is not kept any more.")),
  )
  return el("figure", { class: "picture" }, el("a", { href: url, target: "_blank", rel: "noopener" }, shown), caption)
}
