variable "project" {
  description = "Project id."
  type        = string
}

variable "region" {
  description = "Region of the registry and of Terraform's state."
  type        = string

  validation {
    condition     = length(regexall("^[a-z]+-[a-z]+[0-9]+$", var.region)) == 1
    error_message = "A region looks like us-central1; us-central1-a is a zone."
  }
}

variable "bucket_locations" {
  description = "Where checkpoints lie: one region or multi-region (US, EU, ASIA), or two regions of one continent."
  type        = list(string)
}

variable "capacity" {
  description = "What may be created: of it the zones are looked at here, before a bucket is made that none of them could use."
  # Of no type, for a type would drop what is not spelled rightly without a word.
  type     = any
  nullable = false

  validation {
    condition = alltrue([for c in var.capacity : alltrue([for name in keys(c) : contains(local.fields, name)])])
    error_message = "An entry of capacity has ${join(", ", local.fields)}; not ${join(", ", distinct(flatten([
      for c in var.capacity : [for name in keys(c) : name if !contains(local.fields, name)]
    ])))}."
  }
  validation {
    condition     = alltrue([for c in var.capacity : lookup(c, "zone", null) != null])
    error_message = "An entry of capacity needs a zone."
  }
}
