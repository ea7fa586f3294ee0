// Stands for base.js in a file that shows a run without a server: all that a page would fetch is in the file itself.

export const BASE = null

const carried = JSON.parse(document.getElementById("shared-parts").textContent)

export const PACKED = {
  style: carried.style,
  formulas: carried.formulas, // the stylesheet of KaTeX, whose script runs before; null where no text has a formula
  image: (sha256) => (Object.hasOwn(carried.images, sha256) ? carried.images[sha256] : null),
}
