variable "project" {
  description = "Project id."
  type        = string
}

variable "region" {
  description = "Region of the services, the database, the queue and the registry. The database can never be moved."
  type        = string

  validation {
    condition     = length(regexall("^[a-z]+-[a-z]+[0-9]+$", var.region)) == 1
    error_message = "A region looks like us-central1; us-central1-a is a zone."
  }
}

variable "database" {
  description = "Name of the Firestore database. Under another name Terraform makes an empty one and forgets the one before: see infra/runbooks/upgrade.md first."
  type        = string
  default     = "rekindle"

  validation {
    condition     = length(regexall("^[a-z][a-z0-9-]{2,61}[a-z0-9]$", var.database)) == 1
    error_message = "4 to 63 lower-case letters, digits and hyphens; it begins with a letter."
  }
}

variable "bucket_locations" {
  description = "Where checkpoints lie: one region or multi-region (US, EU, ASIA), or two regions of one continent. TPUs are taken in these regions only. A bucket cannot be moved later."
  type        = list(string)

  validation {
    condition     = length(var.bucket_locations) == 1 || length(var.bucket_locations) == 2
    error_message = "One location, or two regions of one continent."
  }
}

# Three variables are of no type: Terraform drops an attribute that a type does not name without a word, and a slip of a letter would take a
# bound away. `main.tf` makes of them what the services read.

variable "capacity" {
  description = "What may be created, and nothing else: accelerator (v5litepod-16, or a family v5litepod-*), zone, kind (spot, preemptible, on_demand, reserved), most chips, US dollars for a chip-hour (0: granted quota)."
  type        = any
  nullable    = false

  validation {
    condition     = length(var.capacity) > 0
    error_message = "Nothing could ever be created."
  }
  validation {
    condition = alltrue([for c in var.capacity : alltrue([for name in keys(c) : contains(local.fields.entry, name)])])
    error_message = "An entry of capacity has ${join(", ", local.fields.entry)}; not ${join(", ", distinct(flatten([
      for c in var.capacity : [for name in keys(c) : name if !contains(local.fields.entry, name)]
    ])))}."
  }
  validation {
    condition = alltrue([for c in var.capacity : alltrue([
      for name in local.fields.entry : lookup(c, name, null) != null if name != "max_chips"
    ])])
    error_message = "An entry of capacity needs accelerator, zone, kind and usd_per_chip_hour."
  }
  validation {
    condition = alltrue([for c in var.capacity :
      length(regexall("^([*]|[a-z][a-z0-9]*(-[0-9]*)?[*]|[a-z][a-z0-9]*-[0-9]+)$", lookup(c, "accelerator", ""))) == 1
    ])
    error_message = "An accelerator looks like v5litepod-16, or v5litepod-* for the whole family."
  }
  # As the services, which begin with nothing that could never be had.
  validation {
    condition = anytrue([for c in var.capacity : anytrue([
      for family in local.families : startswith(lookup(c, "accelerator", ""), "${family}-") || (
        endswith(lookup(c, "accelerator", ""), "*") && startswith("${family}-", trimsuffix(lookup(c, "accelerator", ""), "*"))
      )
    ])])
    error_message = "No accelerator of capacity is of a family that is known (${join(", ", local.families)}): nothing could ever be created."
  }
  validation {
    condition     = alltrue([for c in var.capacity : contains(["spot", "preemptible", "on_demand", "reserved"], lookup(c, "kind", ""))])
    error_message = "The kind is spot, preemptible, on_demand or reserved."
  }
  validation {
    condition     = alltrue([for c in var.capacity : length(regexall("^[a-z]+-[a-z]+[0-9]+-[a-z0-9]+$", lookup(c, "zone", ""))) == 1])
    error_message = "A zone looks like us-central1-a."
  }
  validation {
    condition     = alltrue([for c in var.capacity : tonumber(lookup(c, "usd_per_chip_hour", -1)) >= 0])
    error_message = "usd_per_chip_hour may not be below zero."
  }
  validation {
    condition = alltrue([for c in var.capacity :
      lookup(c, "max_chips", null) == null ? true : length(regexall("^[0-9]{1,9}$", tostring(lookup(c, "max_chips", null)))) == 1
    ])
    error_message = "max_chips of an entry of capacity is a whole number, 0 or more."
  }
  # As the services see it: the bucket's regions, a multi-region with all of its own.
  validation {
    condition = anytrue([for c in var.capacity : anytrue([
      for l in var.bucket_locations : startswith(lookup(c, "zone", ""), "${lookup({ us = "us", eu = "europe", asia = "asia" }, lower(l), lower(l))}-")
    ])])
    error_message = "No zone of capacity lies in bucket_locations: no TPU could ever be taken."
  }
}

variable "max_chips" {
  description = "Most chips of all jobs at once."
  type        = number

  validation {
    condition     = var.max_chips >= 1 && floor(var.max_chips) == var.max_chips
    error_message = "A whole number of chips, one at least; `rekindle freeze` holds back all creates."
  }
}

variable "max_usd_per_day" {
  description = "Most US dollars a day of all jobs; the monthly budget follows from it."
  type        = number

  validation {
    condition     = var.max_usd_per_day >= 0
    error_message = "Not below zero."
  }
}

variable "people" {
  description = "Who may call: addresses of people and service accounts. Groups are not taken, since the service checks each address by itself."
  type        = list(string)

  validation {
    condition     = length(var.people) > 0 && alltrue([for p in var.people : length(regexall("^[^@:*]+@[^@:]+$", p)) == 1])
    error_message = "Plain addresses, without user: or group:."
  }
}

variable "admins" {
  description = "Who of them may act for other owners, and is told of alerts."
  type        = list(string)

  validation {
    condition     = length(var.admins) > 0 && alltrue([for a in var.admins : contains(var.people, a)])
    error_message = "At least one, and each of them also in people."
  }
}

variable "owner_limits" {
  description = "Limits of single owners: most chips at once (max_chips), most US dollars a day (max_usd_per_day)."
  type        = any
  default     = {}
  nullable    = false

  validation {
    condition = alltrue([for limits in values(var.owner_limits) : alltrue([for name in keys(limits) : contains(local.fields.limits, name)])])
    error_message = "Limits of an owner are ${join(", ", local.fields.limits)}; not ${join(", ", distinct(flatten([
      for limits in values(var.owner_limits) : [for name in keys(limits) : name if !contains(local.fields.limits, name)]
    ])))}."
  }
  validation {
    condition     = alltrue([for owner in keys(var.owner_limits) : length(regexall("^[^* ]([^*]*[^* ])?$", owner)) == 1])
    error_message = "owner_limits names each owner in full, without *; max_chips and max_usd_per_day are of all together."
  }
  validation {
    condition = alltrue([for limits in values(var.owner_limits) :
      lookup(limits, "max_chips", null) == null ? true : length(regexall("^[0-9]{1,9}$", tostring(lookup(limits, "max_chips", null)))) == 1
    ])
    error_message = "max_chips of an owner is a whole number, 0 or more."
  }
  validation {
    condition = alltrue([for limits in values(var.owner_limits) :
      lookup(limits, "max_usd_per_day", null) == null ? true : tonumber(lookup(limits, "max_usd_per_day", null)) >= 0
    ])
    error_message = "max_usd_per_day of an owner may not be below zero."
  }
}

variable "policy" {
  description = "Who may see, submit for and stop whose jobs beside their own (rules: who and whose: addresses, *@DOMAIN, *, pubsub for job messages; may: see, submit, stop), and what the jobs of an owner may borrow (borrow, * for all others: service_accounts, secrets, capacity: parts of the capacity list, absent: all of it)."
  type        = any
  default     = {}
  nullable    = false

  validation {
    condition     = alltrue([for name in keys(var.policy) : contains(["rules", "borrow"], name)])
    error_message = "policy has rules, borrow; not ${join(", ", [for name in keys(var.policy) : name if !contains(["rules", "borrow"], name)])}."
  }
  validation {
    condition = alltrue([for r in lookup(var.policy, "rules", null)[*] : alltrue([for name in keys(r) : contains(local.fields.rule, name)])])
    error_message = "A rule of policy has ${join(", ", local.fields.rule)}; not ${join(", ", distinct(flatten([
      for r in lookup(var.policy, "rules", null)[*] : [for name in keys(r) : name if !contains(local.fields.rule, name)]
    ])))}."
  }
  validation {
    condition     = alltrue([for r in lookup(var.policy, "rules", null)[*] : alltrue([for name in local.fields.rule : lookup(r, name, null) != null])])
    error_message = "A rule of policy needs who, whose and may."
  }
  validation {
    condition = alltrue([for b in values(merge(lookup(var.policy, "borrow", null))) : alltrue([for name in keys(b) : contains(local.fields.borrow, name)])])
    error_message = "What policy lends is ${join(", ", local.fields.borrow)}; not ${join(", ", distinct(flatten([
      for b in values(merge(lookup(var.policy, "borrow", null))) : [for name in keys(b) : name if !contains(local.fields.borrow, name)]
    ])))}."
  }
  validation {
    condition = alltrue([for b in values(merge(lookup(var.policy, "borrow", null))) : alltrue([
      for part in lookup(b, "capacity", null)[*] : alltrue([for name in keys(part) : contains(local.fields.part, name)])
    ])])
    error_message = "Parts of capacity that policy lends have ${join(", ", local.fields.part)}; not ${join(", ", distinct(flatten([
      for b in values(merge(lookup(var.policy, "borrow", null))) : [
        for part in lookup(b, "capacity", null)[*] : [for name in keys(part) : name if !contains(local.fields.part, name)]
      ]
    ])))}."
  }
  validation {
    condition = alltrue([for b in values(merge(lookup(var.policy, "borrow", null))) : alltrue([
      for part in lookup(b, "capacity", null)[*] :
      lookup(part, "kind", null) == null ? true : contains(["spot", "preemptible", "on_demand", "reserved"], lookup(part, "kind", null))
    ])])
    error_message = "The kind of a part that policy lends is spot, preemptible, on_demand or reserved."
  }
  validation {
    condition     = alltrue([for r in lookup(var.policy, "rules", null)[*] : alltrue([for m in lookup(r, "may", []) : contains(["see", "submit", "stop"], m)])])
    error_message = "Rights are see, submit and stop."
  }

  validation {
    condition = alltrue([for r in lookup(var.policy, "rules", null)[*] :
      alltrue([for p in lookup(r, "who", []) : length(regexall("^([*]|([*]@)?[^*: ]+)$", p)) == 1]) &&
      alltrue([for p in lookup(r, "whose", []) : length(regexall("^([*]|([*]@)?[^* ]([^*]*[^* ])?)$", p)) == 1])
    ])
    error_message = "who and whose have whole names, without a kind such as user:, or *@DOMAIN or *."
  }

  validation {
    condition     = alltrue([for owner in keys(merge(lookup(var.policy, "borrow", null))) : length(regexall("^([*]|[^* ]([^*]*[^* ])?)$", owner)) == 1])
    error_message = "policy lends to owners that are named in full, or to * for all others."
  }

  validation {
    condition = alltrue([for b in values(merge(lookup(var.policy, "borrow", null))) : alltrue([
      for account in lookup(b, "service_accounts", null)[*] : length(regexall("^([*]|[^*@: ]+@[^*: ]+)$", account)) == 1
    ])])
    error_message = "service_accounts that policy lends are addresses, or * for any."
  }

  validation {
    condition = alltrue([for b in values(merge(lookup(var.policy, "borrow", null))) : alltrue([
      for s in lookup(b, "secrets", null)[*] : s == "" || (startswith(s, "projects/") && length(regexall("[* ]", s)) == 0)
    ])])
    error_message = "Secrets are lent by how their names begin, such as projects/PROJECT/secrets/NAME-; an empty word lends all."
  }
}

variable "publishers" {
  description = "Who may publish job messages to rekindle-jobs. A message carries no identity, so its jobs belong to `pubsub`, unless a rule of policy lets `pubsub` submit for an owner."
  type        = list(string)
  default     = []
}

variable "worker_accounts" {
  description = "Further service accounts that jobs may run as."
  type        = list(string)
  default     = []
}

variable "worker_prefixes" {
  description = "Of these worker accounts (`worker` is the usual one, others by their address), how the ids of the jobs begin whose folders below jobs/ they may read and write: such as team-a-. Absent: every job's."
  type        = map(string)
  default     = {}

  validation {
    condition     = alltrue([for name, prefix in var.worker_prefixes : (name == "worker" || contains(var.worker_accounts, name)) && length(regexall("^[a-z][a-z0-9-]*$", prefix)) == 1])
    error_message = "Keys are worker or one of worker_accounts; values are the beginning of an id, such as team-a-."
  }
}

variable "worker_secrets" {
  description = "Ids of the secrets of this project that jobs may borrow."
  type        = list(string)
  default     = []
}

variable "nat" {
  description = "Cloud NAT for workers without external addresses. Without either they reach neither the services nor packages."
  type        = bool
  default     = true
}

variable "otlp_endpoint" {
  description = "Address of an OpenTelemetry collector that takes spans (OTLP over HTTP); empty: traces pass through, and lines carry them."
  type        = string
  default     = ""

  validation {
    condition     = var.otlp_endpoint == "" || length(regexall("^https?://[^/ ]+", var.otlp_endpoint)) == 1
    error_message = "otlp_endpoint is an address such as https://HOST:4318, or empty."
  }
}

variable "alerts" {
  description = "Whether to make alert policies. From September 2027 on Google bills each of their references to a metric: one here."
  type        = bool
  default     = true
}

variable "tick_absence" {
  description = "Whether an alert also tells of a tick that ceased without a word while no job lives. It is a second reference to a metric."
  type        = bool
  default     = false
}

variable "budget" {
  description = "Whether to make a budget. It takes rights on the billing account."
  type        = bool
  default     = true
}

variable "image" {
  description = "The image by digest; written by publish.sh into release.auto.tfvars.json."
  type        = string
}

variable "agent_sha256" {
  description = "sha256 of the agent; written by publish.sh into release.auto.tfvars.json."
  type        = string

  validation {
    condition     = length(regexall("^[0-9a-f]{64}$", var.agent_sha256)) == 1
    error_message = "64 hex digits."
  }
}
