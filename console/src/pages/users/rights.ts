// Permissions in a vhost that are given most often: patterns of names.

export const EVERYTHING = { configure: ".*", write: ".*", read: ".*" };
export const READ_ONLY = { configure: "", write: "", read: ".*" };
