/** Made by `npm run types` from the api's description. Do not edit. */

export interface paths {
    "/api/admin/capacity": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** The cap and what is used of it. */
        get: {
            parameters: {
                query?: never;
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["CapacityView"];
                    };
                };
                "4XX": {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Problem"];
                    };
                };
            };
        };
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/admin/events": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Every event of the environment, from now on or after `Last-Event-ID`, for staff. */
        get: {
            parameters: {
                query?: never;
                header?: {
                    /** @description Sequence that the client has */
                    "Last-Event-ID"?: number | null;
                };
                path?: never;
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "text/event-stream": components["schemas"]["EventView"];
                    };
                };
                "4XX": {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Problem"];
                    };
                };
            };
        };
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/admin/ghosts": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Objects that no session owns. */
        get: {
            parameters: {
                query?: never;
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["GhostsView"];
                    };
                };
                503: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Problem"];
                    };
                };
                "4XX": {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Problem"];
                    };
                };
            };
        };
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/admin/ghosts/release": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Confirms that these objects are ghosts: the reaper may delete them although there are many. */
        post: {
            parameters: {
                query?: never;
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody: {
                content: {
                    "application/json": components["schemas"]["Release"];
                };
            };
            responses: {
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["GhostsView"];
                    };
                };
                503: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Problem"];
                    };
                };
                "4XX": {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Problem"];
                    };
                };
            };
        };
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/admin/sessions": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** All sessions. */
        get: {
            parameters: {
                query?: never;
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["SessionsView"];
                    };
                };
                "4XX": {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Problem"];
                    };
                };
            };
        };
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/admin/sessions/{id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post?: never;
        /** Ends anybody's session. */
        delete: {
            parameters: {
                query?: never;
                header?: never;
                path: {
                    id: string;
                };
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                202: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["OwnedView"];
                    };
                };
                "4XX": {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Problem"];
                    };
                };
            };
        };
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/admin/stats": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** How long phases take. */
        get: {
            parameters: {
                query?: never;
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["StatsView"];
                    };
                };
                "4XX": {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Problem"];
                    };
                };
            };
        };
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/auth/callback": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Where the identity provider sends the browser back to. */
        get: {
            parameters: {
                query?: {
                    code?: string;
                    state?: string;
                };
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                303: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content?: never;
                };
                503: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Problem"];
                    };
                };
                "4XX": {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Problem"];
                    };
                };
            };
        };
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/auth/login": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Sends the browser to the identity provider. */
        get: {
            parameters: {
                query?: never;
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                303: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content?: never;
                };
                503: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Problem"];
                    };
                };
                "4XX": {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Problem"];
                    };
                };
            };
        };
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/labs": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** The labs. */
        get: {
            parameters: {
                query?: never;
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["LabsView"];
                    };
                };
                401: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Problem"];
                    };
                };
            };
        };
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/labs/{lab}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** One lab with the texts of its steps. */
        get: {
            parameters: {
                query?: never;
                header?: never;
                path: {
                    lab: string;
                };
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["LabView"];
                    };
                };
                "4XX": {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Problem"];
                    };
                };
            };
        };
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/login": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Signs in without a password: only where the operator switched it on, and only on loopback. */
        post: {
            parameters: {
                query?: never;
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody: {
                content: {
                    "application/json": components["schemas"]["Login"];
                };
            };
            responses: {
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["SignedIn"];
                    };
                };
                "4XX": {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Problem"];
                    };
                };
            };
        };
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/logout": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Signs out. */
        post: {
            parameters: {
                query?: never;
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                204: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content?: never;
                };
                "4XX": {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Problem"];
                    };
                };
            };
        };
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/me": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Who is signed in. */
        get: {
            parameters: {
                query?: never;
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Me"];
                    };
                };
                401: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Problem"];
                    };
                };
            };
        };
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/sessions": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Starts a lab. */
        post: {
            parameters: {
                query?: never;
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody: {
                content: {
                    "application/json": components["schemas"]["Start"];
                };
            };
            responses: {
                201: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["SessionView"];
                    };
                };
                503: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Problem"];
                    };
                };
                "4XX": {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Problem"];
                    };
                };
            };
        };
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/sessions/current": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** The live session, else the one that ends or has just ended. */
        get: {
            parameters: {
                query?: never;
                header?: never;
                path?: never;
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["SessionView"];
                    };
                };
                "4XX": {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Problem"];
                    };
                };
            };
        };
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/sessions/{id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** One session. */
        get: {
            parameters: {
                query?: never;
                header?: never;
                path: {
                    id: string;
                };
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["SessionView"];
                    };
                };
                "4XX": {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Problem"];
                    };
                };
            };
        };
        put?: never;
        post?: never;
        /** Ends a session, from any state. */
        delete: {
            parameters: {
                query?: never;
                header?: never;
                path: {
                    id: string;
                };
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                202: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["SessionView"];
                    };
                };
                "4XX": {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Problem"];
                    };
                };
            };
        };
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/sessions/{id}/events": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** A snapshot of the session, then each change; ends after `ended`. */
        get: {
            parameters: {
                query?: never;
                header?: {
                    /** @description Version that the client has */
                    "Last-Event-ID"?: number | null;
                };
                path: {
                    id: string;
                };
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "text/event-stream": components["schemas"]["SessionView"];
                    };
                };
                "4XX": {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Problem"];
                    };
                };
            };
        };
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/sessions/{id}/extend": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Adds time. */
        post: {
            parameters: {
                query?: never;
                header?: never;
                path: {
                    id: string;
                };
                cookie?: never;
            };
            requestBody?: never;
            responses: {
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["SessionView"];
                    };
                };
                "4XX": {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Problem"];
                    };
                };
            };
        };
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/sessions/{id}/steps/{n}/check": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Checks a step. */
        post: {
            parameters: {
                query?: never;
                header?: never;
                path: {
                    id: string;
                    /** @description Counted from 1 */
                    n: number;
                };
                cookie?: never;
            };
            requestBody: {
                content: {
                    "application/json": components["schemas"]["Check"];
                };
            };
            responses: {
                200: {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["CheckView"];
                    };
                };
                "4XX": {
                    headers: {
                        [name: string]: unknown;
                    };
                    content: {
                        "application/json": components["schemas"]["Problem"];
                    };
                };
            };
        };
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
}
export type webhooks = Record<string, never>;
export interface components {
    schemas: {
        /** @description How many machines there may be and are. */
        CapacityView: {
            cap: number;
            /** @description Machines that the cluster shows; null while it is unknown. */
            cluster?: number | null;
            /** @description Machines of sessions. */
            sessions: number;
            /** @description Sessions' and the cluster's machines together; null while the cluster is unknown. */
            used?: number | null;
        };
        /** @description How to check. */
        Check: {
            /**
             * @description The page asks by itself: no activity of the student.
             * @default false
             */
            auto: boolean;
        };
        /** @description What a check said. */
        CheckView: {
            /** Format: date-time */
            at: string;
            auto: boolean;
            /** @description Machine-readable where the outcome is `error`. */
            cause?: string | null;
            /** Format: int32 */
            exit_code?: number | null;
            /** @description `passed`, `failed` or `error`. */
            outcome: string;
            output: string;
            /** Format: int32 */
            step: number;
            truncated: boolean;
        };
        /**
         * @description A stable code; the `type` is `urn:ttlab:problem:<code>`.
         * @enum {string}
         */
        Code: "unknown_lab" | "lab_unsupported" | "session_exists" | "session_ending" | "capacity" | "cluster_unknown" | "bus_unreachable" | "no_session" | "not_found" | "not_ready" | "extend_limit" | "unknown_step" | "invalid_request" | "payload_too_large" | "method_not_allowed" | "unauthorized" | "forbidden" | "origin" | "not_serving" | "unavailable" | "internal";
        /** @description How often sessions of a lab ended for a reason. */
        EndView: {
            /** Format: int64 */
            count: number;
            lab: string;
            reason: string;
        };
        /** @description The first time of a phase. */
        EntryView: {
            /** Format: date-time */
            at: string;
            /** @description An outcome that came after another one had won. */
            late: boolean;
            machine?: string | null;
            /**
             * @description `requested`, `provisioning`, `provisioned`, `scheduled`, `running`, `agent`, `ready`, `failed`, `stopped`,
             *     `lost`, `ending` or `ended`.
             */
            phase: string;
        };
        /** @description An event of the stream. Guest text stays out. */
        EventView: {
            /** Format: date-time */
            at?: string | null;
            cause?: string | null;
            id: string;
            /** @description Kebab-case, for example `session-ready`. */
            kind: string;
            lab: string;
            machine?: string | null;
            reason?: string | null;
            /**
             * Format: int64
             * @description Sequence in the stream.
             */
            seq: number;
            session: string;
            /** @description Opaque. */
            user: string;
            /** Format: int64 */
            version: number;
        };
        /** @description An object that no session owns. */
        GhostView: {
            kind: string;
            machine: string;
            name: string;
            /** @description An operator confirmed it. */
            released: boolean;
            session: string;
            uid: string;
        };
        /** @description What looks like ghosts. */
        GhostsView: {
            ghosts: components["schemas"]["GhostView"][];
            /** @description Too many: none is deleted until an administrator releases it. */
            hold: boolean;
            /** @description Machines in the list. */
            machines: number;
        };
        /** @description A lab. */
        LabView: {
            /** @description `beginner`, `intermediate` or `advanced`. */
            difficulty: string;
            /** Format: int64 */
            extend_max_s: number;
            /** Format: int64 */
            extend_step_s: number;
            id: string;
            /** Format: int64 */
            idle_s: number;
            /** Format: int64 */
            life_s: number;
            machines: string[];
            runtime: string;
            steps: components["schemas"]["StepView"][];
            summary: components["schemas"]["TextsView"];
            /** @description Whether it can be started here. */
            supported: boolean;
            title: components["schemas"]["TextsView"];
            /** @description Why not, in plain words. */
            unsupported?: string | null;
        };
        /** @description All labs. */
        LabsView: {
            labs: components["schemas"]["LabView"][];
        };
        /** @description Whom to sign in as. */
        Login: {
            /** @description What they may do. */
            role: components["schemas"]["RoleName"];
            /** @description Any name of 1 to 200 characters. */
            user: string;
        };
        /** @description A machine. */
        MachineView: {
            /** @description `golden`, `container` or `datavolume`, once it is known. */
            disk?: string | null;
            disk_reason?: string | null;
            name: string;
            state: string;
        };
        /** @description Who is signed in, and where. */
        Me: {
            dev_login: boolean;
            environment: string;
            roles: components["schemas"]["RoleName"][];
            user: string;
        };
        /** @description A session with its owner. */
        OwnedView: components["schemas"]["SessionView"] & {
            owner: string;
        };
        /** @description Median and spread of a phase of a lab. */
        PhaseView: {
            /** Format: int64 */
            count: number;
            lab: string;
            /** Format: double */
            p50_ms: number;
            /** Format: double */
            p90_ms: number;
            /** @description `provisioning`, `disk`, `boot`, `agent`, `prepare`, `start` (all of it) or `ending`. */
            phase: string;
        };
        /** @description An `application/problem+json` document (RFC 9457). */
        Problem: Record<string, never> & {
            /** @description Stable and machine-readable. */
            code: components["schemas"]["Code"];
            /** @description Plain words about this occurrence. */
            detail: string;
            /** @description What to do next. */
            next: string;
            /**
             * Format: int32
             * @description The HTTP status.
             */
            status: number;
            /** @description Plain words, the same for every occurrence. */
            title: string;
            /** @description `urn:ttlab:problem:<code>`. */
            type: string;
        };
        /** @description Which objects to release. */
        Release: {
            /** @description Uids as `/api/admin/ghosts` lists them. */
            uids: string[];
        };
        /**
         * @description A role.
         * @enum {string}
         */
        RoleName: "student" | "teacher" | "admin";
        /** @description A session. */
        SessionView: {
            /** @description Machine-readable detail of the reason. */
            cause?: string | null;
            /** @description The latest result of each step. */
            checks: components["schemas"]["CheckView"][];
            console_url: string;
            /** Format: date-time */
            created_at: string;
            /** Format: date-time */
            expires_at?: string | null;
            /** Format: int64 */
            extend_step_s: number;
            /**
             * Format: date-time
             * @description The latest `expires_at` that extending can reach.
             */
            extend_until?: string | null;
            id: string;
            /** Format: date-time */
            idle_at?: string | null;
            lab: string;
            /** @description Tail of the prepare log, where that failed. */
            log_tail?: string | null;
            machines: components["schemas"]["MachineView"][];
            /** @description Plain words: what happened and what to do next. */
            message?: string | null;
            /**
             * Format: date-time
             * @description The server's time, so that a page with a wrong clock counts right.
             */
            now: string;
            /** Format: date-time */
            ready_at?: string | null;
            /** @description Why it ends, once it does. */
            reason?: string | null;
            runtime: string;
            /** Format: date-time */
            start_deadline?: string | null;
            /** @description `queued`, `requested`, `provisioning`, `booting`, `preparing`, `ready`, `ending` or `ended`. */
            state: string;
            timeline: components["schemas"]["EntryView"][];
            /** Format: int64 */
            version: number;
        };
        /** @description Sessions, open ones first, then the youngest ended ones. */
        SessionsView: {
            sessions: components["schemas"]["OwnedView"][];
        };
        /** @description Who is signed in. */
        SignedIn: {
            roles: components["schemas"]["RoleName"][];
            user: string;
        };
        /** @description What to start. */
        Start: {
            /** @description A lab's id. */
            lab: string;
        };
        /** @description Statistics of the last 30 days. */
        StatsView: {
            ends: components["schemas"]["EndView"][];
            phases: components["schemas"]["PhaseView"][];
            /** Format: date-time */
            since: string;
        };
        /** @description A step. */
        StepView: {
            /** @description Whether the page checks it by itself. */
            auto: boolean;
            /** @description Whether it has a check. */
            checkable: boolean;
            hint?: components["schemas"]["TextsView"] | null;
            /** Format: int32 */
            n: number;
            text?: components["schemas"]["TextsView"] | null;
            title: components["schemas"]["TextsView"];
        };
        /** @description A text in every language of the page. */
        TextsView: {
            en: string;
            zh: string;
        };
    };
    responses: never;
    parameters: never;
    requestBodies: never;
    headers: never;
    pathItems: never;
}
export type $defs = Record<string, never>;
export type operations = Record<string, never>;
