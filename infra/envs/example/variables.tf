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

variable "capacity" {
  description = "What may be created, and nothing else: accelerator (v5litepod-16, or a family v5litepod-*), zone, kind (spot, preemptible, on_demand, reserved), most chips, US dollars for a chip-hour (0: granted quota)."
  type = list(object({
    accelerator       = string
    zone              = string
    kind              = string
    max_chips         = optional(number)
    usd_per_chip_hour = number
  }))

  validation {
    condition     = length(var.capacity) > 0
    error_message = "Nothing could ever be created."
  }
  validation {
    condition     = alltrue([for c in var.capacity : contains(["spot", "preemptible", "on_demand", "reserved"], c.kind)])
    error_message = "The kind is spot, preemptible, on_demand or reserved."
  }
  validation {
    condition     = alltrue([for c in var.capacity : length(regexall("^[a-z]+-[a-z]+[0-9]+-[a-z0-9]+$", c.zone)) == 1])
    error_message = "A zone looks like us-central1-a."
  }
  validation {
    condition     = alltrue([for c in var.capacity : c.usd_per_chip_hour >= 0 && (c.max_chips == null ? true : c.max_chips >= 0)])
    error_message = "Neither usd_per_chip_hour nor max_chips may be below zero."
  }
  # As the services see it: the bucket's regions, a multi-region with all of its own.
  validation {
    condition = anytrue([for c in var.capacity : anytrue([
      for l in var.bucket_locations : startswith(c.zone, "${lookup({ us = "us", eu = "europe", asia = "asia" }, lower(l), lower(l))}-")
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
  description = "Limits of single owners: most chips at once, most US dollars a day."
  type = map(object({
    max_chips       = optional(number)
    max_usd_per_day = optional(number)
  }))
  default = {}
}

variable "policy" {
  description = "Who may see, submit for and stop whose jobs beside their own (who and whose: addresses, *@DOMAIN, *, pubsub for job messages; may: see, submit, stop), and what the jobs of an owner may borrow (* for all others; capacity: parts of the capacity list, absent: all of it)."
  type = object({
    rules = optional(list(object({
      who   = list(string)
      whose = list(string)
      may   = list(string)
    })), [])
    borrow = optional(map(object({
      service_accounts = optional(list(string), [])
      secrets          = optional(list(string), [])
      capacity = optional(list(object({
        accelerator = optional(string)
        zone        = optional(string)
        kind        = optional(string)
      })))
    })), {})
  })
  default = {}

  validation {
    condition     = alltrue([for r in var.policy.rules : alltrue([for m in r.may : contains(["see", "submit", "stop"], m)])])
    error_message = "Rights are see, submit and stop."
  }

  validation {
    condition = alltrue([for r in var.policy.rules :
      alltrue([for p in r.who : length(regexall("^([*]|([*]@)?[^*: ]+)$", p)) == 1]) &&
      alltrue([for p in r.whose : length(regexall("^([*]|([*]@)?[^* ]([^*]*[^* ])?)$", p)) == 1])
    ])
    error_message = "who and whose have whole names, without a kind such as user:, or *@DOMAIN or *."
  }

  validation {
    condition = alltrue([for b in values(var.policy.borrow) : alltrue([
      for s in b.secrets : s == "" || (startswith(s, "projects/") && length(regexall("[* ]", s)) == 0)
    ])])
    error_message = "Secrets are lent by how their names begin, such as projects/PROJECT/secrets/NAME-; an empty word lends all."
  }
}

variable "publishers" {
  description = "Who may publish job messages to rekindle-jobs. A message carries no identity, so its jobs belong to nobody in particular."
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
