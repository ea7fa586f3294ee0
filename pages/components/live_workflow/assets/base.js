// The address below which the app is served: Streamlit serves this file there, whatever it is.
export const BASE = import.meta.url.slice(0, import.meta.url.indexOf("/_stcore/") + 1)

// What a file brings along that shows a run without a server (packed.js stands in this module's place there).
export const PACKED = null
