variable "project" {
  description = "Project id."
  type        = string
}

variable "regions" {
  description = "Regions with TPUs."
  type        = set(string)
}

variable "nat" {
  description = "Whether workers without an external address reach the internet through Cloud NAT."
  type        = bool
}
