// Stands for the component's base.js: what the page would fetch is at hand, as in a file of a run; a server is named.
export const BASE = "http://localhost/"
export const PACKED = { style: "", formulas: ".katex { }", image: () => null }
