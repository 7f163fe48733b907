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
  description = "What may be created: of it only the zones are looked at here, before a bucket is made that none of them could use."
  type        = list(object({ zone = string }))
}
