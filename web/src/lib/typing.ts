/** When something was last typed into a terminal of this page: a check by itself is pointless before. */
export const typing = { at: 0 };
