import { useState } from 'react';
import { DeleteOutlined, StarOutlined } from '@ant-design/icons';
import { Button, Flex, Input, Popover, Space, Typography } from 'antd';
import { useTranslation } from 'react-i18next';
import { useSavedFilters } from '../../data/savedFilters';

interface SavedFiltersProps {
  list: string;
  /** The current filters and sort order, as search parameters of the URL. */
  search: Record<string, unknown>;
  onApply: (search: Record<string, unknown>) => void;
}

/** Menu of saved filters of a list; the user chooses their names. */
export function SavedFilters({ list, search, onApply }: SavedFiltersProps) {
  const { t } = useTranslation();
  const [isOpen, setIsOpen] = useState(false);
  const [name, setName] = useState('');
  const { items, save, remove } = useSavedFilters(list);
  const store = () => {
    if (name.trim()) {
      save(name.trim(), search);
      setName('');
    }
  };
  return (
    <Popover
      trigger="click"
      placement="bottomRight"
      open={isOpen}
      onOpenChange={setIsOpen}
      title={t('table.saved')}
      content={
        <Flex vertical gap="small" style={{ maxWidth: 280 }}>
          {items.length === 0 && (
            <Typography.Text type="secondary">{t('table.none-saved')}</Typography.Text>
          )}
          {items.map(filter => (
            <Flex key={filter.name} gap="small" justify="space-between">
              <Button
                type="link"
                style={{ padding: 0, overflow: 'hidden' }}
                onClick={() => {
                  setIsOpen(false);
                  onApply(filter.search);
                }}
              >
                {filter.name}
              </Button>
              <Button
                type="text"
                icon={<DeleteOutlined />}
                aria-label={t('table.remove-saved', { name: filter.name })}
                onClick={() => remove(filter.name)}
              />
            </Flex>
          ))}
          <Space.Compact>
            <Input
              value={name}
              maxLength={40}
              onChange={event => setName(event.target.value)}
              onPressEnter={store}
              placeholder={t('table.save-name')}
              aria-label={t('table.save-name')}
            />
            <Button onClick={store}>{t('table.save')}</Button>
          </Space.Compact>
        </Flex>
      }
    >
      <Button icon={<StarOutlined />} aria-label={t('table.saved')} />
    </Popover>
  );
}
