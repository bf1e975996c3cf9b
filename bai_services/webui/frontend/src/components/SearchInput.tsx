import { useState } from 'react';
import { Input } from 'antd';

interface SearchInputProps {
  /** The text of the current search, for example from the URL. */
  value: string;
  label: string;
  onSearch: (text: string) => void;
}

/** A search field. It stays in the page when the search changes, so it keeps the focus. */
export function SearchInput({ value, label, onSearch }: SearchInputProps) {
  const [typed, setTyped] = useState(value);
  const [searched, setSearched] = useState(value);
  if (searched !== value) {
    setSearched(value);
    setTyped(value);
  }
  return (
    <Input.Search
      allowClear
      value={typed}
      placeholder={label}
      aria-label={label}
      onChange={({ target }) => setTyped(target.value)}
      onSearch={onSearch}
      style={{ maxWidth: 240 }}
    />
  );
}
